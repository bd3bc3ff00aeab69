"""Tasks, with their model classes in transformers and their kinds of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformers.models.auto import modeling_auto

from tenonnx.extend import InvalidCall

#: Kinds of graphs: a single one, a decoder with states, with a vision tower or without, or an encoder and decoders.
ONE_CALL, DECODER, ENCODER_DECODER = "one call", "decoder", "encoder and decoder"
VISION_DECODER = "vision tower and decoder"


@dataclass(frozen=True)
class Task:
    """A task with the ``kind`` of its graphs, and the names of transformers' tables of model classes."""

    name: str
    kind: str
    tables: tuple[str, ...]

    def classes(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a model type and a class name."""
        for table in self.tables:
            found: Mapping[str, Any] = getattr(modeling_auto, table, {})
            for kind, names in found.items():
                yield from ((kind, name) for name in ([names] if isinstance(names, str) else names))


def _task(name: str, kind: str, *keys: str) -> Task:
    return Task(name, kind, tuple(f"MODEL_{key}_MAPPING_NAMES" if key else "MODEL_MAPPING_NAMES" for key in keys))


#: Tasks by name, as in pipelines of transformers. A class with several tasks gets the first.
TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        _task("text2text-generation", ENCODER_DECODER, "FOR_SEQ_TO_SEQ_CAUSAL_LM"),
        _task("automatic-speech-recognition", ENCODER_DECODER, "FOR_SPEECH_SEQ_2_SEQ"),
        _task("image-text-to-text", VISION_DECODER, "FOR_IMAGE_TEXT_TO_TEXT"),
        _task("text-generation", DECODER, "FOR_CAUSAL_LM"),
        _task("fill-mask", ONE_CALL, "FOR_MASKED_LM"),
        _task("text-classification", ONE_CALL, "FOR_SEQUENCE_CLASSIFICATION"),
        _task("token-classification", ONE_CALL, "FOR_TOKEN_CLASSIFICATION"),
        _task("question-answering", ONE_CALL, "FOR_QUESTION_ANSWERING"),
        _task("image-classification", ONE_CALL, "FOR_IMAGE_CLASSIFICATION"),
        _task("object-detection", ONE_CALL, "FOR_OBJECT_DETECTION"),
        _task(
            "image-segmentation",
            ONE_CALL,
            "FOR_SEMANTIC_SEGMENTATION",
            "FOR_IMAGE_SEGMENTATION",
            "FOR_INSTANCE_SEGMENTATION",
            "FOR_UNIVERSAL_SEGMENTATION",
        ),
        _task("depth-estimation", ONE_CALL, "FOR_DEPTH_ESTIMATION"),
        _task("zero-shot-image-classification", ONE_CALL, "FOR_ZERO_SHOT_IMAGE_CLASSIFICATION"),
        _task("speech-recognition-ctc", ONE_CALL, "FOR_CTC"),
        _task("audio-classification", ONE_CALL, "FOR_AUDIO_CLASSIFICATION"),
        _task("feature-extraction", ONE_CALL, ""),
    )
}


def task_named(name: str) -> Task:
    """Return a task by name. Raises ``InvalidCall`` for an unknown one."""
    if name not in TASKS:
        raise InvalidCall("unknown task", given=name, available=", ".join(TASKS))
    return TASKS[name]


def task_of(class_name: str) -> Task:
    """Return the task of a model class. Raises ``InvalidCall`` if transformers lists the class for no task."""
    for task in TASKS.values():
        if any(name == class_name for _, name in task.classes()):
            return task
    raise InvalidCall(
        "the task of the model is unknown",
        given=class_name,
        available=", ".join(TASKS),
        do="give the task: task=, or --task of a command",
    )


def class_for(task: Task, model_type: str) -> str:
    """Return the class name of a model type for a task. Raises ``InvalidCall`` if there is none."""
    found = [name for kind, name in task.classes() if kind == model_type]
    if not found:
        able = [each.name for each in TASKS.values() if any(kind == model_type for kind, _ in each.classes())]
        raise InvalidCall(
            f'models of type "{model_type}" have no head for the task {task.name}', available=", ".join(able) or "none"
        )
    return found[0]
