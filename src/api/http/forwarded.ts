// The headers between nodes, and the mark on requests that another node has forwarded. Only the node listener
// sets the mark, so no header on the public port can.
import type { IncomingMessage } from 'node:http';

/** Headers of clients with this prefix are not forwarded. */
const PREFIX = 'millrace-node-';

export const NODE_HEADERS = {
  secret: `${PREFIX}secret`,
  /** The client's address, and `+tls` behind it if the client's connection is encrypted. */
  client: `${PREFIX}client`,
  /** ID for the new job, and ` repeat` behind it if it may exist already. */
  job: `${PREFIX}job`,
  /** An earlier attempt of the request may have had its effect. */
  repeat: `${PREFIX}repeat`,
  /**
   * Of every answer: `owner`; `not_owner` if the request was refused unread; `lost` if the endpoint moved while
   * the request was served, and it was not answered.
   */
  answer: `${PREFIX}answer`,
  /** Of an answer to a worker: gRPC URL of the node that has answered. */
  grpcUrl: `${PREFIX}grpc-url`,
} as const;

/** Status of a refused request; `NODE_HEADERS.answer` decides, because workers may send any status. */
export const NOT_OWNER_STATUS = 421;

export interface NewJobId {
  id: string;
  /** An earlier attempt to submit the job may have succeeded. */
  isRepeated: boolean;
}

export interface Forwarded {
  /** Address of the client. */
  address: string;
  /** Whether the client's connection is encrypted. */
  isEncrypted: boolean;
}

const FORWARDED: unique symbol = Symbol('forwarded');
const REPEATED: unique symbol = Symbol('repeated');
const READ_BODY: unique symbol = Symbol('readBody');
const NEW_JOB: unique symbol = Symbol('newJob');

declare module 'node:http' {
  interface IncomingMessage {
    [FORWARDED]?: Forwarded;
    [REPEATED]?: true;
    [READ_BODY]?: Buffer;
    [NEW_JOB]?: NewJobId | undefined;
  }
}

/** Undefined for requests of clients. */
export function findForwarded(request: IncomingMessage): Forwarded | undefined {
  return request[FORWARDED];
}

/** Whether an earlier attempt of the request, at another node, may have had its effect. */
export function isRepeated(request: IncomingMessage): boolean {
  return request[REPEATED] ?? false;
}

export function noteRepeated(request: IncomingMessage): void {
  request[REPEATED] = true;
}

/** The body of a request that was read for another node, and is now served here. */
export function findReadBody(request: IncomingMessage): Buffer | undefined {
  return request[READ_BODY];
}

export function noteReadBody(request: IncomingMessage, bytes: Buffer): void {
  request[READ_BODY] = bytes;
}

/** The ID that the node which received the request has chosen for the new job; undefined without one. */
export function findNewJob(request: IncomingMessage): NewJobId | undefined {
  return request[NEW_JOB];
}

export function noteNewJob(request: IncomingMessage, job: NewJobId | undefined): void {
  request[NEW_JOB] = job;
}

/** Address of the client, whichever node has received the request. */
export function readClientAddress(request: IncomingMessage): string {
  return request[FORWARDED]?.address ?? request.socket.remoteAddress ?? '';
}

/** Whether the client's connection is encrypted. */
export function isEncrypted(request: IncomingMessage): boolean {
  return request[FORWARDED]?.isEncrypted ?? 'encrypted' in request.socket;
}

export function isNodeHeader(name: string): boolean {
  return name.toLowerCase().startsWith(PREFIX);
}

/** Marks a request whose secret was checked, and removes the headers between nodes from it. */
export function markForwarded(request: IncomingMessage): void {
  const { headers, rawHeaders } = request;
  const [address = '', tls] = String(headers[NODE_HEADERS.client] ?? '').split('+');
  request[FORWARDED] = { address, isEncrypted: tls === 'tls' };
  if (headers[NODE_HEADERS.repeat] !== undefined) noteRepeated(request);
  noteNewJob(request, readJob(headers[NODE_HEADERS.job]));
  request.rawHeaders = rawHeaders.filter(
    (_text, at) => !isNodeHeader(rawHeaders[at - (at % 2)] ?? ''),
  );
  for (const name of Object.values(NODE_HEADERS)) delete headers[name];
}

export interface ForwardedTerms {
  secret: string;
  job: NewJobId | undefined;
  /** An earlier attempt may have had its effect. */
  isRepeated: boolean;
}

/** The headers that another node reads. */
export function describeForwarded(
  request: IncomingMessage,
  { isRepeated, job, secret }: ForwardedTerms,
): string[] {
  const client = `${readClientAddress(request)}${isEncrypted(request) ? '+tls' : ''}`;
  const described = [NODE_HEADERS.secret, secret, NODE_HEADERS.client, client];
  if (job) described.push(NODE_HEADERS.job, job.isRepeated ? `${job.id} repeat` : job.id);
  if (isRepeated) described.push(NODE_HEADERS.repeat, '1');
  return described;
}

const JOB =
  /^((?:sync-)?[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})( repeat)?$/;

function readJob(header: string | string[] | undefined): NewJobId | undefined {
  const [, id, repeat] = JOB.exec(String(header ?? '')) ?? [];
  return id === undefined ? undefined : { id, isRepeated: repeat !== undefined };
}
