"""``python -m tenonnx``: the command line, if a package that provides it is installed."""

import sys

try:
    from tenonnx.errors import PluginError
    from tenonnx.registry.extensions import extension

    try:
        main = extension("__main__.main")
    except PluginError as error:
        sys.exit(str(error))
except KeyboardInterrupt:
    sys.exit(130)
sys.exit(main())
