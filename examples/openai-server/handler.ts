// Streams the tokens of an OpenAI-compatible server that runs beside the handler.
import { fileURLToPath } from 'node:url';
import { type Context, type Job, NonRetryableError, type SetupContext } from 'millrace';
import { z } from 'zod';
import { ModelServer } from './model-server.ts';

/** For vLLM: ['vllm', 'serve', MODEL, '--port', String(port)], and `/health`. */
const server = new ModelServer(
  (port) => ['python3', fileURLToPath(new URL('./small_server.py', import.meta.url)), String(port)],
  '/health',
);

export const input = z.strictObject({ prompt: z.string().max(100_000) });

/** The server runs several requests at a time, as vLLM does in its own batches. */
export const config = { concurrency: 8 };

export const setup = (ctx: SetupContext) => server.start(ctx);
export const teardown = () => server.stop();

const event = z.object({ choices: z.array(z.object({ text: z.string() })).min(1) });

export default async function* (job: Job<z.infer<typeof input>>, ctx: Context) {
  try {
    // The signal ends the request, and with it the work of the server.
    const response = await fetch(`${server.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: job.input.prompt, stream: true }),
      signal: ctx.signal,
    });
    if (response.status === 400) throw new NonRetryableError(await response.text());
    if (!response.ok || !response.body) throw new Error(`the model server said ${response.status}`);
    for await (const line of readLines(response.body)) {
      if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
      const text = event.parse(JSON.parse(line.slice('data: '.length))).choices[0]?.text;
      yield ctx.chunk(text, { tokens: 1 });
    }
  } catch (error) {
    if (!isRunning()) ctx.refreshWorker();
    throw error;
  }
}

function isRunning(): boolean {
  try {
    server.check();
    return true;
  } catch {
    return false;
  }
}

async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let rest = '';
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}
