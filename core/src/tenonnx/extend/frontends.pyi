"""Where each name is defined; read by type checkers, and when one is first used."""

from tenonnx.checks.verification import Verification as Verification
from tenonnx.loading import Frontend as Frontend
from tenonnx.registry.discovery import check_takes as check_takes
from tenonnx_frontends.allowed import BY_TABLE as BY_TABLE
from tenonnx_frontends.allowed import Allowed as Allowed
