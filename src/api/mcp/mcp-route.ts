// Serves `POST /mcp`. A tool's call is a request of its own to the same server, without a connection, with the caller's
// key: it passes all checks, and is forwarded to the node that serves its endpoint.
import { createMcpHandler } from '@modelcontextprotocol/server';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { JSON_TYPE } from '../../wire/operations/operation.ts';
import { mcpMessage } from '../../wire/operations/operations.ts';
import { ProblemError } from '../../wire/problem.ts';
import { check, parseJson } from '../body/body.ts';
import { sendBytes } from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { type QueryValues, readChoice } from '../http/requests.ts';
import { createToolServer } from './tool-server.ts';
import { type CallOperation, readAnswer, TOOLS } from './tools.ts';

type McpRequest = FastifyRequest<{ Querystring: QueryValues; Body: Buffer | undefined }>;

export async function serveMcp(
  request: McpRequest,
  reply: FastifyReply,
  { version }: { version: string },
): Promise<FastifyReply> {
  const message = check(parseJson(request.body ?? Buffer.alloc(0)), mcpMessage);
  const mayWrite = readChoice(request.query, 'write', ['true', 'false']) === 'true';
  const tools = TOOLS.filter(({ isReading }) => isReading || mayWrite);
  const call = callWithin(request, abortWhenGone(reply.raw));
  const handler = createMcpHandler(() => createToolServer({ tools, call, version }), {
    // Nothing of the server changes.
    maxSubscriptions: 0,
  });
  try {
    const response = await handler.fetch(toWebRequest(request), { parsedBody: message });
    const mediaType = response.headers.get('content-type');
    const body = new Uint8Array(await response.arrayBuffer());
    if (!response.ok) refuseUnanswered(body);
    if (mediaType === null) return await reply.code(response.status).send();
    return await sendBytes(reply, { mediaType, pieces: [body] });
  } finally {
    await handler.close();
  }
}

/** An error that answers the message is an answer; any other one is about the request. @throws ProblemError `malformed` */
function refuseUnanswered(body: Uint8Array): void {
  const { error, id } = protocolError.parse(JSON.parse(Buffer.from(body).toString()));
  if (id === null) throw new ProblemError('malformed', error.message);
}

const protocolError = z.object({
  id: z.union([z.string(), z.number(), z.null()]).default(null),
  error: z.object({ message: z.string() }),
});

/** The caller's key decides what a tool may do. */
function callWithin(request: McpRequest, signal: AbortSignal): CallOperation {
  const { headers, raw, server } = request;
  const { authorization, host } = headers;
  const passed = { ...(host && { host }), ...(authorization && { authorization }) };
  const { remoteAddress } = raw.socket;
  return async ({ body, maxBytes, method, target }) => {
    const response = await server.inject({
      method,
      url: target,
      headers: { ...passed, ...(body !== undefined && { 'content-type': JSON_TYPE }) },
      ...(body !== undefined && { payload: body }),
      ...(remoteAddress && { remoteAddress }),
      payloadAsStream: true,
      signal,
    });
    return readAnswer(response.statusCode, response.stream(), maxBytes);
  };
}

/** The handler reads headers only: the body is parsed already. */
function toWebRequest({ headers, raw }: McpRequest): Request {
  const given = Object.entries(headers).flatMap(([name, value]) =>
    typeof value === 'string' && !HOP_HEADERS.has(name) ? [[name, value] as [string, string]] : [],
  );
  return new Request(`http://millrace${raw.url}`, { method: 'POST', headers: given, body: '{}' });
}

const HOP_HEADERS = new Set([
  'authorization',
  'connection',
  'content-length',
  'cookie',
  'expect',
  'transfer-encoding',
]);
