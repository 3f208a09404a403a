// Reads the data of a topic on the node that has it, with the rights of the caller: the same operation, over HTTP.
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { http } from '../../base/net/node-http.ts';
import { PROBLEMS, type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { EVENT_LIMITS, type Topic } from '../../wire/routes/event-topics.ts';
import { LOG_CUT_HEADER } from '../../wire/routes/routes.ts';
import type { Forwarder } from '../forwarding/forwarder.ts';
import { NODE_HEADERS } from '../nodes/forwarded.ts';
import { readNodeAddress } from '../nodes/node-address.ts';
import { firstSecret } from '../nodes/node-secret.ts';

/** Of one read, ms. */
const READ_MS = 5_000;

export interface RemoteRead {
  /** Of the node. */
  url: string;
  topic: Topic;
  credentials: Readonly<Record<string, string>>;
}

/** @throws ProblemError that the node answers, or `unavailable` */
export async function readAtNode(
  { agent, options }: Pick<Forwarder, 'agent' | 'options'>,
  { credentials, topic, url }: RemoteRead,
): Promise<object> {
  const path = topic.rule.target(topic);
  try {
    const request = http.request({
      ...{ ...readNodeAddress(url), agent, method: 'GET', path },
      signal: AbortSignal.timeout(READ_MS),
      headers: { ...credentials, [NODE_HEADERS.secret]: firstSecret(options.secrets) },
    });
    request.end();
    const [response]: IncomingMessage[] = await once(request, 'response');
    if (!response) throw new Error('no response');
    return readAnswer(response, await collect(response), topic);
  } catch (cause) {
    if (cause instanceof ProblemError) throw cause;
    throw new ProblemError('unavailable', 'The node that has this data does not answer now.', {
      cause,
    });
  }
}

function readAnswer(
  { headers, statusCode = 0 }: IncomingMessage,
  body: string,
  topic: Topic,
): object {
  if (headers[NODE_HEADERS.answer] !== 'owner') throw new Error('the node does not have the data');
  if (statusCode === 200) {
    if (topic.kind !== 'pod-log') return Object(JSON.parse(body));
    return { log: body, truncated: headers[LOG_CUT_HEADER.toLowerCase()] === 'true' };
  }
  const { code, detail }: Record<string, unknown> = Object(JSON.parse(body));
  throw new ProblemError(findCode(code), String(detail));
}

function findCode(code: unknown): ProblemCode {
  return typeof code === 'string' && isCode(code) ? code : 'unavailable';
}

function isCode(code: string): code is ProblemCode {
  return Object.hasOwn(PROBLEMS, code);
}

async function collect(response: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of response) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes > EVENT_LIMITS.snapshotBytes) throw new Error('the answer is too large');
  }
  return Buffer.concat(pieces).toString();
}
