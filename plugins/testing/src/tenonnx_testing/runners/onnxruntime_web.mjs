// Child process of the runner onnxruntime_web: a request and an answer a line, as JSON.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const answers = process.stdout.write.bind(process.stdout);
console.log = console.info = console.warn = console.error;
const ort = createRequire(`${process.argv[2]}/`)("onnxruntime-web");
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";

const arrays = {
  float16: globalThis.Float16Array ?? Uint16Array, float32: Float32Array, float64: Float64Array, bool: Uint8Array,
  int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array,
};

function tensor({ type, dims, data }) {
  const bytes = new Uint8Array(Buffer.from(data, "base64"));
  return new ort.Tensor(type, new arrays[type](bytes.buffer, 0, bytes.length / arrays[type].BYTES_PER_ELEMENT), dims);
}

async function run({ path, feeds }) {
  const session = await ort.InferenceSession.create(new Uint8Array(readFileSync(path)), { logSeverityLevel: 4 });
  try {
    const given = Object.fromEntries(Object.entries(feeds).map(([name, each]) => [name, tensor(each)]));
    const found = await session.run(given);
    return Object.fromEntries(Object.entries(found).map(([name, each]) => {
      const { buffer, byteOffset, byteLength } = each.data;
      if (buffer === undefined) throw new Error(`no tensor of ${each.type}`);
      return [name, { type: each.type, dims: each.dims, data: Buffer.from(buffer, byteOffset, byteLength).toString("base64") }];
    }));
  } finally {
    await session.release();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { outputs: await run(JSON.parse(line)) };
  } catch (error) {
    answer = { error: String(error?.message ?? error).slice(0, 300) };
  }
  answers(JSON.stringify(answer) + "\n");
}
