// Passes a chat completion or completion on to any OpenAI-compatible server and streams the answer.
//
//   { "model": "llama-3.1-8b", "messages": [{ "role": "user", "content": "Say hi" }] }
//   →  "Hi"   "!"   ""  { "prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13 }
//   →  { "text": "Hi!", "finish_reason": "stop", "model": …, "usage": { … } }
//
// The input is the body of POST /chat/completions (`messages`) or POST /completions (`prompt`) and
// goes out as it is. `stream` is true unless it is set to false; then there are no chunks and the
// server's answer is the output. A stream ends with an empty chunk that carries the token usage.
//
// Server and key come from the worker's environment: OPENAI_BASE_URL (with the version, as in
// https://api.openai.com/v1) and OPENAI_API_KEY. The key goes to that server and nowhere else.
import { type Context, defineHandler, type Job } from 'millrace';
import { z } from 'zod';
import { AnswerAssembler, readUsageMetrics } from './lib/completion-stream.ts';
import { openUpstream, readAnswer, readUpstreamConfig } from './lib/openai-upstream.ts';
import { readServerEvents } from './lib/sse.ts';

const input = z
  .looseObject({
    model: z.string().min(1),
    messages: z
      .array(z.looseObject({ role: z.string() }))
      .min(1)
      .exactOptional(),
    prompt: z.union([z.string(), z.array(z.unknown())]).exactOptional(),
    stream: z.boolean().default(true),
    n: z.int().min(1).nullish(),
    stream_options: z.looseObject({}).nullish(),
  })
  .refine(({ messages, prompt }) => (messages === undefined) !== (prompt === undefined), {
    error: 'needs either messages or prompt',
  })
  .refine(({ stream, n }) => !stream || (n ?? 1) === 1, {
    path: ['n'],
    error: 'must be 1 unless stream is false: a streamed answer has one text',
  });

type ProxyInput = z.infer<typeof input>;

export default defineHandler({ input, run: proxy, config: { concurrency: 32 } });

async function* proxy({ input: request }: Job<ProxyInput>, ctx: Context) {
  const config = readUpstreamConfig(process.env);
  const answer = await openUpstream({
    config,
    path: request.messages === undefined ? 'completions' : 'chat/completions',
    body: request.stream ? askForUsage(request) : request,
    signal: ctx.signal,
  });
  // Some servers do not stream, whatever they are asked for.
  if (!request.stream || !answer.isEventStream) return await readAnswer(answer, config);

  const assembler = new AnswerAssembler(config);
  for await (const { event, data } of readServerEvents(answer.body)) {
    if (data === '[DONE]') break;
    const delta = assembler.accept(event, data);
    if (delta !== '') yield delta;
  }
  ctx.signal.throwIfAborted();
  const whole = assembler.finish();
  const usage = readUsageMetrics(whole.usage);
  if (usage !== undefined) yield ctx.chunk('', usage);
  return whole;
}

/** `stream_options: null` is for servers that know no such member. */
function askForUsage(request: ProxyInput): ProxyInput {
  const { stream_options: options, ...rest } = request;
  if (options === null) return rest;
  return { ...rest, stream_options: { include_usage: true, ...options } };
}
