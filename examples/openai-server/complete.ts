// Makes a handler that streams the tokens of an OpenAI-compatible server.
import { defineHandler, NonRetryableError } from 'millrace';
import { type ModelServer, readEvents } from 'millrace/process';
import { z } from 'zod';

const event = z.object({ choices: z.array(z.object({ text: z.string() })).min(1) });

/** `model`: the name that the server knows it by, if it needs one. */
export function completeWith(server: ModelServer, model?: string) {
  return defineHandler({
    input: z.strictObject({
      prompt: z.string().max(100_000),
      maxTokens: z.int().min(1).max(10_000).default(256),
    }),
    // The server runs several requests at a time, as vLLM does in its own batches.
    config: { concurrency: 8 },
    setup: (ctx) => server.start(ctx),
    teardown: () => server.stop(),
    async *run({ input: { maxTokens, prompt } }, ctx) {
      const json = { model, prompt, max_tokens: maxTokens, stream: true };
      // `ctx` ends the request with the job, and with it the work of the server.
      const response = await server.fetch('/v1/completions', { json }, ctx);
      if (response.status === 400) throw new NonRetryableError(await response.text());
      if (!response.ok) throw new Error(`the model server answered ${response.status}`);
      for await (const data of readEvents(response)) {
        const text = event.parse(JSON.parse(data)).choices[0]?.text;
        yield ctx.chunk(text, { tokens: 1 });
      }
    },
  });
}
