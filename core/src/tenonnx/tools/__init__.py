"""What a program that shows, runs, converts and checks models is made of, such as the command line.

A name is imported with its module when it is first used, so that a command waits for nothing that it does not need;
``__init__.pyi`` says where each is.
"""

from tenonnx.registry.namespace import flat_namespace

__getattr__, __dir__ = flat_namespace(__name__)
