"""Import rules: what a package puts in the place of nodes while a model is read (entry-point group tenonnx.rules)."""

from tenonnx.registry.import_rules import ImportRule, import_rule, rules_of
from tenonnx.transforms.user_rules import apply_rules, installed_rules

__all__ = ["ImportRule", "apply_rules", "import_rule", "installed_rules", "rules_of"]
