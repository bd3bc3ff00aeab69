"""TFLite: flatbuffers of models, read without TensorFlow."""
