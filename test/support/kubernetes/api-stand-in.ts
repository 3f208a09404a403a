// A small server of the Kubernetes API for the engine's tests: real HTTPS with tokens, lists, watches and logs. Tests hold its
// answers, cut or expire its watches, and move its clock. `npm run test:kubernetes` runs the same tests on a real API server.
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { request as callKubelet, createServer, type Server } from 'node:https';
import { text as readText } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import type { Certificate } from '../certificates.ts';
import { KubeError, type KubeObject } from './client.ts';
import {
  type ObjectChange,
  type ObjectPath,
  parsePath,
  StandInObjects,
} from './stand-in-objects.ts';

const METRICS = /^\/apis\/metrics\.k8s\.io\/v1beta1(\/namespaces\/[^/]+\/pods\/[^/]+)$/;

const containersSchema = z.array(z.looseObject({ name: z.string() }));
const nodeSchema = z.looseObject({
  daemonEndpoints: z.looseObject({ kubeletEndpoint: z.looseObject({ Port: z.number() }) }),
});

type Selector = (object: KubeObject) => boolean;

export class ApiStandIn {
  readonly #server: Server;
  readonly #objects = new StandInObjects();
  /** Ends each open watch with an error. */
  readonly #watches = new Set<(error: KubeError) => void>();
  readonly #tokens = new Set<string>();
  #port = 0;
  /** Called before each request with a valid token is carried out, which waits for the result. */
  hold: ((token: string, method: string) => Promise<void> | undefined) | undefined;
  /** How far its clock, as its answers tell it, is ahead of this machine's, ms. */
  aheadMs = 0;

  private constructor(certificate: Certificate) {
    this.#server = createServer(certificate, (request, response) => {
      response.setHeader('date', new Date(Date.now() + this.aheadMs).toUTCString());
      this.#serve(request, response).catch((error: unknown) => fail(response, error));
    });
  }

  /** `certificate`: for `localhost`. */
  static async start(certificate: Certificate): Promise<ApiStandIn> {
    const standIn = new ApiStandIn(certificate);
    standIn.#server.listen(0, '127.0.0.1');
    await once(standIn.#server, 'listening');
    const address = standIn.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    standIn.#port = address.port;
    return standIn;
  }

  get url(): string {
    return `https://localhost:${this.#port}`;
  }

  allowToken(token: string): void {
    this.#tokens.add(token);
  }

  /** Ends the open watches: with 410, which the next one from an earlier version gets, too, or as a broken connection. */
  breakWatches(how: 'expired' | 'cut'): void {
    if (how === 'cut') {
      this.#server.closeAllConnections();
      return;
    }
    this.#objects.compact();
    const error = new KubeError(410, 'Expired', 'too old resource version');
    for (const end of [...this.#watches]) end(error);
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', this.url);
    const { method = '' } = request;
    const token = request.headers.authorization?.replace(/^Bearer /, '') ?? '';
    if (!this.#tokens.has(token)) throw new KubeError(401, 'Unauthorized', 'Unauthorized');
    await this.hold?.(token, method);
    const metrics = METRICS.exec(pathname)?.[1];
    const path = parsePath(metrics === undefined ? pathname : `/api/v1${metrics}`);
    if (!path) throw new KubeError(404, 'NotFound', 'the server could not find the resource');
    if (metrics !== undefined) return this.#askKubelet(path, pathname, response);
    if (method === 'GET' && path.part === 'log') {
      return this.#sendLog(path, searchParams, response);
    }
    if (method === 'GET' && path.name === undefined) {
      return this.#sendList(path, searchParams, response);
    }
    const body = method === 'GET' ? '' : await readText(request);
    const written = this.#run(method, path, body === '' ? undefined : JSON.parse(body));
    answer(response, method === 'POST' ? 201 : 200, written);
  }

  #run(method: string, path: ObjectPath, body: unknown): unknown {
    if (method === 'GET') return this.#objects.get(path);
    if (method === 'DELETE') return this.#objects.remove(path, body);
    if (method === 'PATCH') return this.#objects.patch(path, body);
    if (path.name === undefined) return this.#objects.create(path, body);
    this.#objects.bind(path, body);
    return { kind: 'Status', status: 'Success' };
  }

  #sendList(path: ObjectPath, query: URLSearchParams, response: ServerResponse): void {
    const selects = parseSelectors(query);
    if (query.get('watch') === 'true') {
      this.#watch(path, selects, query, response);
      return;
    }
    const metadata = { resourceVersion: String(this.#objects.version) };
    const found = this.#objects.list(path).filter(selects);
    // As Kubernetes 1.20 writes an empty list of metadata.
    const isNull = found.length === 0 && response.req.headers.accept?.includes('Partial');
    const items = isNull ? null : found;
    answer(response, 200, { kind: 'List', apiVersion: 'v1', metadata, items });
  }

  /** Sends changes as lines of JSON, until the client leaves or the time is over. */
  #watch(
    path: ObjectPath,
    selects: Selector,
    query: URLSearchParams,
    response: ServerResponse,
  ): void {
    const send = (type: string, object: unknown) =>
      response.write(`${JSON.stringify({ type, object })}\n`);
    const tell = ({ before, object, plural, type }: ObjectChange) => {
      const isElsewhere =
        path.namespace !== undefined && object.metadata.namespace !== path.namespace;
      if (plural !== path.plural || isElsewhere) return;
      const wasSelected = before !== undefined && selects(before);
      if (type !== 'DELETED' && selects(object)) send(wasSelected ? 'MODIFIED' : 'ADDED', object);
      else if (wasSelected) send('DELETED', object);
    };
    const end = (error: KubeError) => {
      send('ERROR', describeProblem(error));
      response.end();
    };
    const missed = this.#objects.changesSince(Number(query.get('resourceVersion')));
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
    for (const change of missed) tell(change);
    const unlisten = this.#objects.listen(tell);
    this.#watches.add(end);
    const seconds = Number(query.get('timeoutSeconds') ?? 1_800);
    const timer = setTimeout(() => {
      const metadata = { resourceVersion: String(this.#objects.version), creationTimestamp: null };
      send('BOOKMARK', { apiVersion: 'v1', metadata });
      response.end();
    }, seconds * 1_000);
    response.once('close', () => {
      clearTimeout(timer);
      unlisten();
      this.#watches.delete(end);
    });
  }

  #sendLog(path: ObjectPath, query: URLSearchParams, response: ServerResponse): Promise<void> {
    const [container] = containersSchema.parse(this.#objects.get(path).spec?.['containers']);
    const name = `${path.namespace}/${path.name}/${container?.name}`;
    return this.#askKubelet(path, `/containerLogs/${name}?${query}`, response);
  }

  /** Passes on what the kubelet of the pod's node answers. */
  async #askKubelet(path: ObjectPath, target: string, response: ServerResponse): Promise<void> {
    const { nodeName } = this.#objects.get(path).spec ?? {};
    if (typeof nodeName !== 'string') {
      response.writeHead(204).end();
      return;
    }
    const node = { plural: 'nodes', namespace: undefined, name: nodeName, part: undefined };
    const { daemonEndpoints } = nodeSchema.parse(this.#objects.get(node).status);
    const address = new URL(target, `https://127.0.0.1:${daemonEndpoints.kubeletEndpoint.Port}`);
    const call = callKubelet(address, { rejectUnauthorized: false }).end();
    response.once('close', () => call.destroy());
    const [reply]: IncomingMessage[] = await once(call, 'response');
    if (reply?.statusCode !== 200) {
      const message = reply ? await readText(reply) : '';
      throw new KubeError(reply?.statusCode ?? 502, 'NotFound', message);
    }
    response.writeHead(200, { 'content-type': reply.headers['content-type'] ?? 'text/plain' });
    response.flushHeaders();
    await pipeline(reply, response);
  }
}

/** Of labels and fields, each `NAME=VALUE`. */
function parseSelectors(query: URLSearchParams): Selector {
  const parse = (name: string) =>
    (query.get(name) ?? '')
      .split(',')
      .filter((part) => part !== '')
      .map((part) => part.split('='));
  const labels = parse('labelSelector');
  const fields = parse('fieldSelector');
  return (object) =>
    labels.every(([label = '', value]) => object.metadata.labels?.[label] === value) &&
    fields.every(([path = '', value]) => readField(object, path) === value);
}

function readField(object: unknown, path: string): unknown {
  return path.split('.').reduce((value: unknown, member) => {
    return typeof value === 'object' && value !== null ? Reflect.get(value, member) : undefined;
  }, object);
}

function fail(response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const known =
    error instanceof KubeError ? error : new KubeError(500, 'InternalError', String(error));
  answer(response, known.code, describeProblem(known));
}

function describeProblem({ code, message, reason }: KubeError): unknown {
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message,
    reason,
    code,
  };
}

function answer(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}
