import type { IncomingMessage, ServerResponse } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { NonRetryableError, RetryAfterError } from 'millrace';
import { afterEach, describe, expect, it, vi } from 'vitest';
import openaiProxy from '../../../handlers/openai-proxy.ts';
import {
  collectStream,
  isAsyncGenerator,
  makeContext,
  startServer,
} from '../../support/handler-context.ts';

const KEY = 'sk-test-0123456789';
const chat = { model: 'm', messages: [{ role: 'user', content: 'Say hi' }] };

type Answer = (request: IncomingMessage, response: ServerResponse, body: unknown) => unknown;

/** A server that OPENAI_BASE_URL leads to. */
async function startUpstream(answer: Answer) {
  const server = await startServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
      void answer(request, response, JSON.parse(String(Buffer.concat(pieces))));
    });
  });
  vi.stubEnv('OPENAI_BASE_URL', `${server.url}/v1`);
  vi.stubEnv('OPENAI_API_KEY', KEY);
  return server;
}

function startEvents(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
}

/** An upstream that streams this text, so many bytes a packet. */
async function startStream(text: string, packetBytes = 1_000) {
  return await startUpstream(async (_, response) => {
    startEvents(response);
    const bytes = Buffer.from(text);
    for (let start = 0; start < bytes.length; start += packetBytes) {
      response.write(bytes.subarray(start, start + packetBytes));
      await setImmediate();
    }
    response.end();
  });
}

function run(raw: unknown, context = makeContext()): AsyncGenerator<unknown, unknown, void> {
  const input = openaiProxy.input?.parse(raw);
  if (input === undefined) throw new Error('no schema');
  const result = openaiProxy.run({ id: 'j', input }, context.ctx);
  if (!isAsyncGenerator(result)) throw new Error('not a generator');
  return result;
}

async function fail(raw: unknown): Promise<Error> {
  try {
    await collectStream(run(raw));
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error('did not fail');
}

function event(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

function delta(content: string, finishReason: string | null = null): string {
  return event({ model: 'm-1', choices: [{ delta: { content }, finish_reason: finishReason }] });
}

const usage = { prompt_tokens: 11, completion_tokens: 2, total_tokens: 13 };
const done = 'data: [DONE]\n\n';

afterEach(() => vi.unstubAllEnvs());

describe('openai-proxy, streaming', () => {
  it('forwards the body unchanged with the key and asks for the usage', async () => {
    const seen: unknown[] = [];
    await using _ = await startUpstream((request, response, body) => {
      seen.push(request.method, request.url, request.headers.authorization, body);
      startEvents(response);
      response.end(delta('Hi', 'stop') + done);
    });

    await collectStream(run({ ...chat, temperature: 0.5, stream_options: { x: 1 } }));

    expect(seen).toEqual([
      'POST',
      '/v1/chat/completions',
      `Bearer ${KEY}`,
      {
        ...chat,
        temperature: 0.5,
        stream: true,
        stream_options: { include_usage: true, x: 1 },
      },
    ]);
  });

  it('yields the deltas, then the usage as metrics, and returns the whole', async () => {
    await using _ = await startStream(
      delta('') + delta('Hi') + delta('!', 'stop') + event({ choices: [], usage }) + done,
    );

    const { outputs, metrics, returned } = await collectStream(run(chat));

    expect(outputs).toEqual(['Hi', '!', '']);
    expect(metrics).toEqual([{}, {}, usage]);
    expect(returned).toEqual({ text: 'Hi!', finish_reason: 'stop', model: 'm-1', usage });
  });

  it.each([1, 2, 3, 7, 50])('reads a stream in packets of %i bytes', async (bytes) => {
    const text = `: ping\r\n\r\n${delta('é€').replaceAll('\n', '\r\n')}: x\n${delta('😀\n', 'length')}data: {"choices":\ndata: [],"usage":null}\n\n${done}`;
    await using _ = await startStream(text, bytes);

    const { outputs, returned } = await collectStream(run(chat));

    expect(outputs).toEqual(['é€', '😀\n']);
    expect(returned).toMatchObject({ text: 'é€😀\n', finish_reason: 'length' });
  });

  it('supports the older completions API', async () => {
    let path: string | undefined;
    await using _ = await startUpstream((request, response) => {
      path = request.url;
      startEvents(response);
      response.end(event({ choices: [{ text: 'once', finish_reason: 'stop' }] }) + done);
    });

    const { outputs } = await collectStream(run({ model: 'm', prompt: 'Upon' }));

    expect(path).toBe('/v1/completions');
    expect(outputs).toEqual(['once']);
  });

  it('joins tool calls from their pieces', async () => {
    const call = (part: object) => event({ choices: [{ delta: { tool_calls: [part] } }] });
    await using _ = await startStream(
      call({ index: 0, id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a"' } }) +
        call({ index: 0, function: { arguments: ':1}' } }) +
        call({ index: 1, id: 'c2', function: { name: 'sub', arguments: '{}' } }) +
        event({ choices: [{ delta: {}, finish_reason: 'tool_calls' }] }) +
        done,
    );

    const { returned } = await collectStream(run(chat));

    expect(returned).toMatchObject({
      finish_reason: 'tool_calls',
      tool_calls: [
        { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a":1}' } },
        { id: 'c2', type: 'function', function: { name: 'sub', arguments: '{}' } },
      ],
    });
  });

  it('needs no [DONE] if the server marked the answer as complete', async () => {
    await using _ = await startStream(delta('Hi', 'stop'));

    expect((await collectStream(run(chat))).returned).toMatchObject({ text: 'Hi' });
  });

  it('fails if the stream ends before the answer does', async () => {
    await using _ = await startStream(delta('Hi'));

    const error = await fail(chat);

    expect(error).not.toBeInstanceOf(NonRetryableError);
  });

  it('fails if the connection breaks', async () => {
    await using _ = await startUpstream(async (_request, response) => {
      startEvents(response);
      response.write(delta('Hi'));
      await setImmediate();
      response.destroy();
    });

    expect(await fail(chat)).not.toBeInstanceOf(NonRetryableError);
  });

  it.each([
    [event({ error: { message: 'out of memory' } }), 'out of memory'],
    ['event: error\ndata: {"message":"overloaded"}\n\n', 'overloaded'],
    [event({ error: 'plain text' }), 'plain text'],
    ['event: error\ndata: ?\n\n', ''],
    ['data: <html>\n\n', ''],
  ])('fails if the stream contains %j', async (text, message) => {
    await using _ = await startStream(delta('Hi') + text + done);

    const error = await fail(chat);

    expect(error).not.toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain(message);
  });

  it('is not retried if the stream blames the request', async () => {
    await using _ = await startStream(
      event({ error: { message: 'x', type: 'invalid_request_error' } }),
    );

    expect(await fail(chat)).toBeInstanceOf(NonRetryableError);
  });

  it('returns the answer of a server that does not stream as the output', async () => {
    await using _ = await startUpstream((_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"choices":[]}');
    });

    expect((await collectStream(run(chat))).returned).toEqual({ choices: [] });
  });

  it('omits stream_options for servers that do not support them', async () => {
    let sent: unknown;
    await using _ = await startUpstream((_request, response, body) => {
      sent = body;
      startEvents(response);
      response.end(delta('Hi', 'stop'));
    });

    await collectStream(run({ ...chat, stream_options: null }));

    expect(sent).toEqual({ ...chat, stream: true });
  });

  it('ends the request upstream when the job is cancelled', async () => {
    const closed = Promise.withResolvers<void>();
    await using _ = await startUpstream((_request, response) => {
      startEvents(response);
      response.write(delta('Hi'));
      response.on('close', () => closed.resolve());
    });
    const context = makeContext();
    const pieces = run(chat, context);

    expect(await pieces.next()).toMatchObject({ value: 'Hi' });
    const next = pieces.next();
    context.controller.abort(new Error('cancelled by the test'));

    await expect(next).rejects.toThrow('cancelled by the test');
    await closed.promise;
  });

  it('ends the request upstream when the generator is asked to return', async () => {
    const closed = Promise.withResolvers<void>();
    await using _ = await startUpstream((_request, response) => {
      startEvents(response);
      response.write(delta('Hi'));
      response.on('close', () => closed.resolve());
    });
    const pieces = run(chat);
    await pieces.next();

    await pieces.return(undefined);

    await closed.promise;
  });
});

describe('openai-proxy, not streaming', () => {
  it('returns the answer of the server as the output, without a chunk', async () => {
    let sent: unknown;
    await using _ = await startUpstream((_request, response, body) => {
      sent = body;
      response.end('{"choices":[{"message":{"content":"Hi!"}}]}');
    });

    const { outputs, returned } = await collectStream(run({ ...chat, stream: false, n: 2 }));

    expect(outputs).toEqual([]);
    expect(returned).toEqual({ choices: [{ message: { content: 'Hi!' } }] });
    expect(sent).toEqual({ ...chat, stream: false, n: 2 });
  });

  it('fails on an answer that is not JSON', async () => {
    await using _ = await startUpstream((_request, response) => response.end('<html>'));

    expect((await fail({ ...chat, stream: false })).message).toContain('<html>');
  });
});

describe('openai-proxy, refusals', () => {
  async function answer(status: number, body: string, headers: Record<string, string> = {}) {
    await using _ = await startUpstream((_request, response) => {
      response.writeHead(status, headers).end(body);
    });
    return await fail(chat);
  }

  it.each([400, 401, 404, 422, 301])('is not retried after %i', async (status) => {
    const error = await answer(status, '{"error":{"message":"no such model"}}');

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toMatch(new RegExp(`\\b${status}: no such model$`));
  });

  it.each([429, 503])('waits after %i as long as the server asks', async (status) => {
    const error = await answer(status, '', { 'retry-after': '3' });

    expect(error).toBeInstanceOf(RetryAfterError);
    expect(error.message).toMatch(new RegExp(`\\b${status}$`));
    expect(Reflect.get(error, Symbol.for('millrace.retry'))).toEqual({
      ...{ kind: 'after', ms: 3_000, counts: true },
    });
  });

  it.each([429, 500, 503])('leaves the wait after %i to the queue otherwise', async (status) => {
    const error = await answer(status, 'busy');

    expect(error).not.toBeInstanceOf(RetryAfterError);
    expect(error).not.toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('busy');
  });

  it('keeps the key out of the message, whatever the server says', async () => {
    const error = await answer(401, `{"error":{"message":"Incorrect key: ${KEY}"}}`);

    expect(error.message).toMatch(/\b401: Incorrect key: \[key\]$/);
    expect(String(error.stack)).not.toContain(KEY);
  });

  it('reports that the server is unreachable, without the key', async () => {
    const server = await startUpstream(() => {});
    await server[Symbol.asyncDispose]();

    const error = await fail(chat);

    expect(error).not.toBeInstanceOf(NonRetryableError);
    expect(error.message).toContain('ECONNREFUSED');
    expect(error.cause).toBeUndefined();
  });

  it.each([
    [{}, ['OPENAI_BASE_URL', 'OPENAI_API_KEY']],
    [{ OPENAI_API_KEY: KEY }, ['OPENAI_BASE_URL']],
    [{ OPENAI_BASE_URL: 'http://127.0.0.1:1' }, ['OPENAI_API_KEY']],
    [{ OPENAI_BASE_URL: 'localhost', OPENAI_API_KEY: KEY }, ['OPENAI_BASE_URL']],
    [{ OPENAI_BASE_URL: 'http://127.0.0.1:1', OPENAI_API_KEY: 'a\nb' }, ['OPENAI_API_KEY']],
  ])('names the error in the configuration %j', async (env, names) => {
    const empty = { OPENAI_BASE_URL: '', OPENAI_API_KEY: '' };
    for (const [name, value] of Object.entries({ ...empty, ...env })) vi.stubEnv(name, value);

    const error = await fail(chat);

    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message.match(/OPENAI_\w+/g)).toEqual(names);
    expect(error.message).not.toContain(KEY);
  });

  it.each([
    [{ messages: chat.messages }, 'model'],
    [{ model: 'm' }, ''],
    [{ ...chat, prompt: 'x' }, ''],
    [{ model: 'm', messages: [] }, 'messages'],
    [{ model: 'm', messages: [{ content: 'x' }] }, 'messages.0.role'],
    [{ ...chat, n: 2 }, 'n'],
    [{ ...chat, stream: 'yes' }, 'stream'],
  ])('refuses %j', (raw, path) => {
    const issues = openaiProxy.input?.safeParse(raw).error?.issues;

    expect(issues?.map((issue) => issue.path.join('.'))).toEqual([path]);
  });
});
