"""Public names and the modules that define them."""

from tenonnx_convert.apply_rules import apply_installed_rules as apply_installed_rules
from tenonnx_convert.apply_rules import apply_rules as apply_rules
from tenonnx_convert.apply_rules import installed_rules as installed_rules
from tenonnx_convert.import_rules import ImportRule as ImportRule
from tenonnx_convert.import_rules import import_rule as import_rule
from tenonnx_convert.import_rules import rules_of as rules_of
