"""Networks: typical examples of JAX converters."""

import jax
import jax.numpy as jnp
from flax import nnx

from cases import BATCH, floats, made


class MnistCNN(nnx.Module):
    def __init__(self, rngs):
        self.conv1, self.conv2 = nnx.Conv(1, 8, (3, 3), rngs=rngs), nnx.Conv(8, 16, (3, 3), rngs=rngs)
        self.linear1, self.linear2 = nnx.Linear(7 * 7 * 16, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.conv1(x)), (2, 2), (2, 2))
        x = nnx.avg_pool(nnx.relu(self.conv2(x)), (2, 2), (2, 2))
        return self.linear2(nnx.relu(self.linear1(x.reshape(x.shape[0], -1))))


class MaxPoolCNN(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 8, (3, 3), padding="VALID", rngs=rngs)
        self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
        self.conv2, self.linear = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs), nnx.Linear(7 * 7 * 16, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.conv1(x))), (2, 2), (2, 2))
        return nnx.log_softmax(self.linear(nnx.relu(self.conv2(x)).reshape(x.shape[0], -1)))


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.linear1, self.linear2 = nnx.Linear(30, 20, rngs=rngs), nnx.Linear(20, 10, rngs=rngs)
        self.norm, self.dropout = (
            nnx.BatchNorm(20, use_running_average=True, rngs=rngs),
            nnx.Dropout(0.1, deterministic=True, rngs=rngs),
        )

    def __call__(self, x):
        return self.linear2(nnx.gelu(self.dropout(self.norm(self.linear1(x)))))


class MLPBlock(nnx.Module):
    def __init__(self, size, rngs):
        self.layers = nnx.List([nnx.Linear(size, 2 * size, rngs=rngs), nnx.Linear(2 * size, size, rngs=rngs)])

    def __call__(self, x):
        return self.layers[1](nnx.gelu(self.layers[0](x), approximate=False))


class TransformerBlock(nnx.Module):
    def __init__(self, size, heads, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(size, rngs=rngs), nnx.LayerNorm(size, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, size, rngs=rngs, decode=False)
        self.mlp = MLPBlock(size, rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nnx.Module):
    def __init__(self, patch, channels, size, rngs):
        self.patch, self.linear = patch, nnx.Linear(patch * patch * channels, size, rngs=rngs)

    def __call__(self, x):
        b, h, w, c = x.shape
        p = self.patch
        x = x.reshape(b, h // p, p, w // p, p, c).transpose(0, 1, 3, 2, 4, 5)
        return self.linear(x.reshape(b, h // p * (w // p), p * p * c))


class ConvEmbedding(nnx.Module):
    def __init__(self, patch, channels, size, rngs):
        self.conv = nnx.Conv(channels, size, (patch, patch), strides=patch, padding="VALID", rngs=rngs)

    def __call__(self, x):
        x = self.conv(x)
        return x.reshape(x.shape[0], -1, x.shape[-1])


class ViT(nnx.Module):
    def __init__(self, embedding, rngs):
        self.embedding = embedding
        self.token = nnx.Param(jnp.asarray(floats(1, 1, 16)))
        self.positions = nnx.Param(jnp.asarray(floats(1, 17, 16)))
        self.blocks = nnx.List([TransformerBlock(16, 2, rngs) for _ in range(2)])
        self.norm, self.head = nnx.LayerNorm(16, rngs=rngs), nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x):
        x = self.embedding(x)
        x = jnp.concatenate([jnp.tile(self.token[...], (x.shape[0], 1, 1)), x], 1) + self.positions[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def _rngs():
    return nnx.Rngs(0)


digit, photo = floats(2, 28, 28, 1), floats(2, 16, 16, 3)
for _dims in (None, BATCH):
    _end = " of any batch" if _dims else ""
    made(f"MNIST CNN{_end}", lambda: MnistCNN(_rngs()), digit, dims=_dims)
    made(f"MNIST CNN with max pool{_end}", lambda: MaxPoolCNN(_rngs()), digit, dims=_dims)
    made(f"MLP{_end}", lambda: MLP(_rngs()), floats(3, 30), dims=_dims)
    made(f"MLP block{_end}", lambda: MLPBlock(8, _rngs()), floats(2, 5, 8), dims=_dims)
    made(f"transformer block{_end}", lambda: TransformerBlock(16, 2, _rngs()), floats(2, 5, 16), dims=_dims)
    made(f"patch embedding{_end}", lambda: PatchEmbedding(4, 3, 16, _rngs()), photo, dims=_dims)
    made(f"conv embedding{_end}", lambda: ConvEmbedding(4, 3, 16, _rngs()), photo, dims=_dims)
    made(f"ViT by patches{_end}", lambda: ViT(PatchEmbedding(4, 3, 16, _rngs()), _rngs()), photo, dims=_dims)
    made(f"ViT by convolution{_end}", lambda: ViT(ConvEmbedding(4, 3, 16, _rngs()), _rngs()), photo, dims=_dims)


def _gradient():
    module = MLP(_rngs())
    return lambda x: jax.grad(lambda y: (module(y) ** 2).sum())(x)


made("gradient of an MLP", _gradient, floats(3, 30), dims=BATCH)
