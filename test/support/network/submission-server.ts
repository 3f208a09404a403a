// An HTTP server that takes submissions as the platform does, or answers by a script, and records the requests.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { onTestFinished, vi } from 'vitest';
import type { ProblemCode } from '../../../src/wire/problem.ts';

export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

export interface Submitted {
  path: string;
  headers: IncomingMessage['headers'];
  /** Of `run`: one. */
  jobs: { input: { n: number }; idempotencyKey?: string }[];
  /** Answers a held request, by default as the platform does. */
  answer(other?: Answer): void;
  isClosed(): boolean;
}

export interface SubmissionServer {
  url: string;
  seen: Submitted[];
  /** Answers of the next requests; then, and for undefined, those of the platform. */
  script: (Answer | undefined)[];
  /** Requests from now on wait for `answer`. */
  hold(): void;
  /** Waits until this number of requests has arrived. */
  arrived(count: number): Promise<void>;
}

export function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  const type = status < 400 ? 'application/json' : 'application/problem+json';
  return (_, response) => {
    response.writeHead(status, { 'content-type': type, ...headers }).end(JSON.stringify(value));
  };
}

export const hangUp: Answer = (request) => request.socket.destroy();

export function problem(status: number, code: ProblemCode) {
  return { title: 'No', status, detail: 'not now', code };
}

export const refuse = (status: number, code: ProblemCode, headers = {}): Answer =>
  json(status, problem(status, code), headers);

/** Only a guard against hanging: a loaded machine needs seconds for large requests. */
const ARRIVAL_MS = 30_000;

export async function startSubmissionServer(): Promise<SubmissionServer> {
  const seen: Submitted[] = [];
  const script: SubmissionServer['script'] = [];
  let isHeld = false;
  const server = createServer(async (request, response) => {
    const { headers, url: path = '' } = request;
    // A client may leave before its request is complete.
    const content = await text(request).catch(() => undefined);
    if (content === undefined) return;
    const body = JSON.parse(content);
    const jobs: Submitted['jobs'] = path.endsWith('/jobs') ? body.jobs : [body];
    const references = jobs.map(({ input }) => ({ id: `job-${input.n}`, status: 'IN_QUEUE' }));
    const usual = json(200, path.endsWith('/jobs') ? { jobs: references } : references[0]);
    const answer = (other: Answer = usual) => other(request, response);
    seen.push({ path, headers, jobs, answer, isClosed: () => response.closed });
    if (!isHeld) answer(script.shift());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    ...{ url: `http://127.0.0.1:${address.port}`, seen, script },
    hold: () => {
      isHeld = true;
    },
    arrived: (count) =>
      vi.waitFor(
        () => {
          if (seen.length < count) throw new Error(`${seen.length} of ${count} requests`);
        },
        { timeout: ARRIVAL_MS },
      ),
  };
}

/** Numbers of the jobs of each request. */
export function numbersOf({ seen }: SubmissionServer): number[][] {
  return seen.map(({ jobs }) => jobs.map(({ input }) => input.n));
}
