// The HTTPS port of the kubelet stand-in: logs, and the figures of metrics.k8s.io.
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Certificate } from '../../certificates.ts';
import { formatTime } from '../client.ts';
import type { PodRun } from './pod-run.ts';

const FOLLOW_MS = 20;
const METRICS_PATH = '/apis/metrics.k8s.io/v1beta1';

export class KubeletServer {
  readonly #server: Server;
  readonly #find: (namespace: string, name: string) => PodRun | undefined;
  port = 0;

  private constructor(
    certificate: Certificate,
    find: (namespace: string, name: string) => PodRun | undefined,
  ) {
    this.#find = find;
    this.#server = createServer(certificate, (request, response) => {
      const url = new URL(request.url ?? '/', 'https://kubelet');
      this.#serve(url, response).catch(() => response.destroy());
    });
  }

  static async start(
    certificate: Certificate,
    find: (namespace: string, name: string) => PodRun | undefined,
  ): Promise<KubeletServer> {
    const server = new KubeletServer(certificate, find);
    server.#server.listen(0, '127.0.0.1');
    await once(server.#server, 'listening');
    const address = server.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    server.port = address.port;
    return server;
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #serve({ pathname, searchParams }: URL, response: ServerResponse): Promise<void> {
    const words = pathname.split('/').map(decodeURIComponent);
    if (words[1] === 'containerLogs') {
      const run = this.#find(words[2] ?? '', words[3] ?? '');
      if (run?.hasStarted) return sendLog(run, searchParams, response);
      const message = run
        ? `container "${words[4]}" in pod "${words[3]}" is waiting to start: ContainerCreating`
        : `pod "${words[3]}" not found`;
      response.writeHead(run ? 400 : 404).end(message);
      return;
    }
    if (!pathname.startsWith(METRICS_PATH)) {
      response.writeHead(404).end();
      return;
    }
    this.#sendMetrics(words.slice(4), response);
  }

  /** Also what the API server asks first: which resources there are. */
  #sendMetrics(words: string[], response: ServerResponse): void {
    const [, namespace = '', , name = ''] = words;
    response.setHeader('content-type', 'application/json');
    const apiVersion = 'metrics.k8s.io/v1beta1';
    if (words.length === 0) {
      const pods = { name: 'pods', kind: 'PodMetrics', namespaced: true, verbs: ['get', 'list'] };
      const list = { kind: 'APIResourceList', apiVersion: 'v1', groupVersion: apiVersion };
      response.end(JSON.stringify({ ...list, resources: [{ singularName: '', ...pods }] }));
      return;
    }
    const run = this.#find(namespace, name);
    const figures = run?.process?.measure();
    if (!run || !figures || figures.bytes === 0) {
      const message = `podmetrics.metrics.k8s.io "${namespace}/${name}" not found`;
      const status = { kind: 'Status', apiVersion: 'v1', status: 'Failure', message };
      response.writeHead(404).end(JSON.stringify({ ...status, reason: 'NotFound', code: 404 }));
      return;
    }
    const usage = {
      cpu: `${Math.round(figures.cores * 1e9)}n`,
      memory: `${Math.round(figures.bytes / 1_024)}Ki`,
    };
    const metadata = { name, namespace };
    const containers = [{ name: run.pod.spec.containers[0].name, usage }];
    const time = { timestamp: formatTime(Date.now()), window: '30s' };
    response.end(JSON.stringify({ kind: 'PodMetrics', apiVersion, metadata, ...time, containers }));
  }
}

/** `tailLines`, `limitBytes` and `follow`, as the API has them. */
async function sendLog(run: PodRun, query: URLSearchParams, response: ServerResponse) {
  const file = await open(run.logFile, 'r');
  let hasEnded = false;
  const ended = run.ended
    .catch(() => {})
    .finally(() => {
      hasEnded = true;
    });
  response.writeHead(200, { 'content-type': 'text/plain' });
  response.flushHeaders();
  try {
    const tail = query.get('tailLines');
    let left = Number(query.get('limitBytes') ?? Infinity);
    let isFirst = true;
    for (;;) {
      const wasEnded = hasEnded;
      const all = await readOn(file);
      const part = isFirst && tail !== null ? takeLines(all, Number(tail)) : all;
      isFirst = false;
      if (part.length > 0) response.write(part.subarray(0, left));
      left -= part.length;
      const isOver = query.get('follow') !== 'true' || wasEnded;
      if (isOver || left <= 0 || response.destroyed) break;
      await Promise.race([sleep(FOLLOW_MS), ...(hasEnded ? [] : [ended])]);
    }
  } finally {
    await file.close();
    response.end();
  }
}

/** What was written since the last call. */
async function readOn(file: Awaited<ReturnType<typeof open>>): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (;;) {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(65_536));
    if (bytesRead === 0) return Buffer.concat(parts);
    parts.push(buffer.subarray(0, bytesRead));
  }
}

function takeLines(text: Buffer, count: number): Buffer {
  let start = text.length;
  for (let line = 0; line < count && start > 0; line++) {
    start = start < 2 ? 0 : text.lastIndexOf('\n', start - 2) + 1;
  }
  return text.subarray(start);
}
