"""Public names and the modules that define them."""

from tenonnx.loading import Frontend as Frontend
from tenonnx.registry.discovery import check_takes as check_takes
from tenonnx_convert.verifying.verification import Verification as Verification
from tenonnx_frontends.allowed import BY_TABLE as BY_TABLE
from tenonnx_frontends.allowed import Allowed as Allowed
