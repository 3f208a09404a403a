// The Kubernetes API as the tests and the kubelet stand-in call it: objects, errors, a client, and watches that go on.

import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, request } from 'undici';
import { z } from 'zod';

const ownerSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  name: z.string(),
  uid: z.string(),
});

const metadataSchema = z.looseObject({
  name: z.string().default(''),
  generateName: z.string().optional(),
  namespace: z.string().optional(),
  uid: z.string().default(''),
  resourceVersion: z.string().optional(),
  creationTimestamp: z.string().nullish(),
  deletionTimestamp: z.string().nullish(),
  deletionGracePeriodSeconds: z.number().nullish(),
  labels: z.record(z.string(), z.string()).nullish(),
  annotations: z.record(z.string(), z.string()).nullish(),
  finalizers: z.array(z.string()).nullish(),
  ownerReferences: z.array(ownerSchema).nullish(),
});

const fieldsSchema = z.record(z.string(), z.unknown());

export const objectSchema = z.looseObject({
  apiVersion: z.string().default('v1'),
  kind: z.string().default(''),
  metadata: metadataSchema,
  spec: fieldsSchema.optional(),
  status: fieldsSchema.optional(),
});

export type KubeObject = z.infer<typeof objectSchema>;
export type Fields = Record<string, unknown>;

const watchEventSchema = z.object({
  type: z.enum(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']),
  object: z.looseObject({ code: z.number().optional(), metadata: metadataSchema }),
});

/** An answer of the API that is not a success. `reason`: such as `AlreadyExists`. */
export class KubeError extends Error {
  override readonly name = 'KubeError';
  readonly code: number;
  readonly reason: string;

  constructor(code: number, reason: string, message: string) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

/** Times of the API have no fractions of a second. */
export function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}

const listSchema = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string() }),
  items: z.array(objectSchema),
});

const problemSchema = z.looseObject({
  reason: z.string().default('Unknown'),
  message: z.string().default(''),
});

export interface KubeAccess {
  url: string;
  /** Certificate authority, PEM. */
  ca: string;
  token: string;
}

type KubeEvent = z.infer<typeof watchEventSchema>;

interface KubeList {
  version: string;
  items: KubeObject[];
}

export class KubeClient {
  readonly access: KubeAccess;
  readonly #agent: Agent;

  constructor(access: KubeAccess) {
    this.access = access;
    // Without limits of time: watches and logs stay open.
    this.#agent = new Agent({ connect: { ca: access.ca }, bodyTimeout: 0, headersTimeout: 0 });
  }

  /** @returns status and body of any answer */
  async call(method: Method, path: string, { accept, body, signal, type }: CallOptions = {}) {
    return request(new URL(path, this.access.url), {
      method,
      dispatcher: this.#agent,
      headers: {
        authorization: `Bearer ${this.access.token}`,
        'content-type': type ?? 'application/json',
        accept: accept ?? 'application/json',
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
    });
  }

  async #callObject(method: Method, path: string, options: CallOptions = {}): Promise<KubeObject> {
    return objectSchema.parse(await this.#callJson(method, path, options));
  }

  async #callJson(method: Method, path: string, options: CallOptions = {}): Promise<unknown> {
    const { body, statusCode } = await this.call(method, path, options);
    const text = await body.text();
    if (statusCode >= 300) throw readProblem(statusCode, text);
    return JSON.parse(text);
  }

  /** @throws KubeError, like all verbs below */
  get(path: string): Promise<KubeObject> {
    return this.#callObject('GET', path);
  }

  /** Undefined if it does not exist. */
  async find(path: string): Promise<KubeObject | undefined> {
    return this.get(path).catch((error: unknown) => {
      if (error instanceof KubeError && error.code === 404) return undefined;
      throw error;
    });
  }

  async list(path: string): Promise<KubeList> {
    const { items, metadata } = listSchema.parse(await this.#callJson('GET', path));
    return { items, version: metadata.resourceVersion };
  }

  create(path: string, body: unknown): Promise<KubeObject> {
    return this.#callObject('POST', path, { body });
  }

  /** A JSON merge patch. */
  patch(path: string, body: unknown): Promise<KubeObject> {
    return this.#callObject('PATCH', path, { body, type: 'application/merge-patch+json' });
  }

  /** A creation that answers with a `Status`. */
  async post(path: string, body: unknown): Promise<void> {
    await this.#callJson('POST', path, { body });
  }

  /** @returns the metadata of the object, if it remains for a while */
  async remove(path: string, options: unknown = {}): Promise<KubeObject['metadata']> {
    const answer = await this.#callJson('DELETE', path, { body: options });
    return objectSchema.pick({ metadata: true }).parse(answer).metadata;
  }

  async readLog(path: string): Promise<string> {
    const { body, statusCode } = await this.call('GET', path);
    const text = await body.text();
    // 204: of a pod without a node.
    if (statusCode !== 200 && statusCode !== 204) throw readProblem(statusCode, text);
    return text;
  }

  /** The events of one watch, until the server ends it or the signal aborts. */
  async *watch(path: string, signal?: AbortSignal): AsyncGenerator<KubeEvent, void, void> {
    const { body, statusCode } = await this.call('GET', path, signal && { signal });
    if (statusCode !== 200) throw readProblem(statusCode, await body.text());
    let rest = '';
    body.setEncoding('utf8');
    for await (const text of body) {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) yield watchEventSchema.parse(JSON.parse(line));
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

interface CallOptions {
  body?: unknown;
  type?: string;
  accept?: string;
  signal?: AbortSignal;
}

function readProblem(code: number, text: string): KubeError {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    parsed = { message: text };
  }
  const { message, reason } = problemSchema.parse(parsed);
  return new KubeError(code, reason, message);
}

/** Pause after a watch that failed. */
const RETRY_MS = 20;

/** `path` may have a selector. Calls back with the objects by UID, after the list and after each change. Resolves when aborted. */
export async function watchAll(
  client: KubeClient,
  path: string,
  signal: AbortSignal,
  onChange: (objects: ReadonlyMap<string, KubeObject>) => void,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const { items, version } = await client.list(path);
      const objects = new Map(items.map((each) => [each.metadata.uid, each]));
      onChange(objects);
      const query = `watch=true&resourceVersion=${version}&timeoutSeconds=300`;
      for await (const { object, type } of client.watch(
        `${path}${path.includes('?') ? '&' : '?'}${query}`,
        signal,
      )) {
        if (type === 'ERROR') break;
        if (type === 'BOOKMARK') continue;
        const changed = objectSchema.parse(object);
        if (type === 'DELETED') objects.delete(changed.metadata.uid);
        else objects.set(changed.metadata.uid, changed);
        onChange(objects);
      }
    } catch {
      // The connection broke, or the server refused: list again.
    }
    if (!signal.aborted) await sleep(RETRY_MS);
  }
}

export interface ReportedEvent {
  name: string;
  namespace: string;
  uid: string;
  reason: string;
  message: string;
}

export async function reportEvent(client: KubeClient, event: ReportedEvent): Promise<void> {
  const { message, name, namespace, reason, uid } = event;
  const now = formatTime(Date.now());
  const involvedObject = { kind: 'Pod', apiVersion: 'v1', name, namespace, uid };
  await client
    .create(`/api/v1/namespaces/${namespace}/events`, {
      metadata: { generateName: `${name}.`, namespace },
      involvedObject,
      reason,
      message,
      type: 'Warning',
      count: 1,
      firstTimestamp: now,
      lastTimestamp: now,
      source: { component: reason === 'FailedScheduling' ? 'default-scheduler' : 'kubelet' },
    })
    .catch(ignoreGone);
}

/** The object, or its namespace, went away meanwhile; another one of its name is not changed. */
export function ignoreGone(error: unknown): void {
  const isGone = error instanceof KubeError && [403, 404, 409, 422].includes(error.code);
  if (!isGone) throw error;
}
