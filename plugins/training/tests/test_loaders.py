"""Loaders and data sets of other libraries, imitated by small classes."""

import numpy as np
import pytest
from trained_models import X, Y, linear

import tenonnx as tx
import tenonnx_training as tt

OPTIONS = {"loss": "mean_squared_error", "optimizer": tt.SGD(0.01), "backend": "numpy", "batch_size": 8, "epochs": 2}


class Tensor:
    """A tensor that has to be detached before the conversion to numpy, as PyTorch's."""

    def __init__(self, array, attached=True):
        self._array, self._attached, self.shape = array, attached, array.shape

    def detach(self):
        return Tensor(self._array, attached=False)

    def cpu(self):
        return self

    def __array__(self, *_, **__):
        if self._attached:
            raise RuntimeError("cannot convert a tensor that requires grad")
        return self._array

    def __len__(self):
        return len(self._array)


class MapDataset:
    """A PyTorch data set that is indexed by sample."""

    def __len__(self):
        return len(X)

    def __getitem__(self, k):
        return Tensor(X[k]), Tensor(Y[k])


class PyDataset:
    """A Keras data set that is indexed by batch and does not raise IndexError at its end."""

    ended = 0

    def __len__(self):
        return -(-len(X) // 8)

    def __getitem__(self, k):
        return X[8 * k : 8 * k + 8], Y[8 * k : 8 * k + 8]

    def on_epoch_end(self):
        self.ended += 1


class Dataset:
    """A Hugging Face data set."""

    def __init__(self, columns):
        self._columns, self.column_names = columns, list(columns)

    def __len__(self):
        return len(next(iter(self._columns.values())))

    def __iter__(self):
        raise AssertionError("it is read by columns")

    def select_columns(self, names):
        return Dataset({name: self._columns[name] for name in names})

    def with_format(self, kind):
        assert kind == "numpy"
        return self

    def __getitem__(self, rows):
        return {name: np.asarray(column)[rows] for name, column in self._columns.items()}


def losses(data, **options):
    return tt.fit(linear(), data, **{**OPTIONS, **options}).losses


def batches():
    return [(X[k : k + 8], Y[k : k + 8]) for k in range(0, len(X), 8)]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    "data",
    [
        (Tensor(X), Tensor(Y)),
        {"x": Tensor(X), "y": Tensor(Y)},
        MapDataset(),
        Dataset({"x": X, "y": Y}),
        Dataset({"id": np.arange(len(X)), "x": X, "labels": Y}),
    ],
    ids=["tuple", "mapping", "map dataset", "dataset", "dataset with other columns"],
)
def test_samples_are_those_of_arrays(data, shuffle):
    assert losses(data, shuffle=shuffle) == losses((X, Y), shuffle=shuffle)


@pytest.mark.parametrize(
    "data",
    [
        PyDataset(),
        batches,
        lambda: iter(batches()),
        [(Tensor(x), Tensor(y)) for x, y in batches()],
        [({"x": x}, y) for x, y in batches()],
        [((x,), y) for x, y in batches()],
    ],
    ids=["PyDataset", "function", "generator", "tensors", "mapping of inputs", "tuple of inputs"],
)
def test_batches_are_those_of_a_list(data):
    assert losses(data) == losses(batches())


def test_a_keras_data_set_is_notified_at_the_end_of_an_epoch():
    data = PyDataset()
    losses(data)
    assert data.ended == 2


def test_weights_are_last_in_a_tuple_as_in_keras():
    weights = np.linspace(0.5, 2, len(X), dtype=np.float32)
    named = losses({"x": X, "labels": Y, "importance": weights}, sample_weights="importance")
    assert losses((X, Y, weights), sample_weights="importance") == named
    assert named != losses((X, Y))


def test_a_data_set_resumes_within_an_epoch():
    one = {**OPTIONS, "epochs": 1, "batch_size": 1}
    graph, whole = linear(), losses(MapDataset(), **one)
    first = tt.fit(graph, MapDataset(), callbacks=[tt.EverySteps(2, tt.Training.stop)], **one).losses
    assert len(first) == 2
    assert first + tt.fit(graph, MapDataset(), epochs=1, backend="numpy").losses == whole


def test_samples_that_differ_in_shape():
    class Ragged(MapDataset):
        def __getitem__(self, k):
            return np.zeros(k + 1, np.float32), Y[k]

    with pytest.raises(tx.InvalidFeed, match="samples of one batch differ in shape"):
        losses(Ragged())


@pytest.mark.parametrize("data", [3, None, object()])
def test_unsupported_data(data):
    with pytest.raises(tx.InvalidFeed, match="neither arrays nor an iterable"):
        losses(data)


def test_a_path_is_read(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, labels=Y)
    for path in (tmp_path / "d.npz", str(tmp_path / "d.npz")):
        assert losses(path, validation=path) == losses((X, Y))
        result = tt.evaluate(linear(), path, loss="mean_squared_error", backend="numpy")
        assert result == tt.evaluate(linear(), (X, Y), loss="mean_squared_error", backend="numpy")
    assert list(tt.read_data(linear(), tmp_path / "d.npz", loss="mean_squared_error")) == ["x", "labels"]


def test_a_loader_whose_length_is_not_known():
    """The DataLoader of a stream has ``__len__``, but it raises."""

    class Loader:
        def __len__(self):
            raise TypeError("object of type 'Streamed' has no len()")

        def __iter__(self):
            return iter([(X, Y)])

    history = tt.fit(linear(), Loader(), **OPTIONS)
    assert len(history.losses) == 2
