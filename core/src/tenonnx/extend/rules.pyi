"""Where each name is defined; read by type checkers, and when one is first used."""

from tenonnx.registry.import_rules import ImportRule as ImportRule
from tenonnx.registry.import_rules import import_rule as import_rule
from tenonnx.registry.import_rules import rules_of as rules_of
from tenonnx.transforms.user_rules import apply_installed_rules as apply_installed_rules
from tenonnx.transforms.user_rules import apply_rules as apply_rules
from tenonnx.transforms.user_rules import installed_rules as installed_rules
