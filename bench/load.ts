// Sends requests from several clients, each one after the other, and computes percentiles.
import { Agent, request } from 'undici';

export interface Load {
  clients: number;
  requests: number;
  url: string;
  headers?: Record<string, string>;
  /** Without a body: GET. */
  body?: string | Buffer;
}

/** Sends the requests, over one connection per client. @returns requests per second */
export async function sendLoad(load: Load): Promise<number> {
  const dispatcher = new Agent({ connections: load.clients, pipelining: 1 });
  let left = load.requests;
  const client = async () => {
    while (left-- > 0) await send(load, dispatcher);
  };
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: load.clients }, client));
  const seconds = (performance.now() - startedAt) / 1_000;
  await dispatcher.close();
  return load.requests / seconds;
}

/** Sends one request after the other. @returns the time of each, ms */
export async function timeEach(load: Omit<Load, 'clients'>): Promise<number[]> {
  const dispatcher = new Agent({ connections: 1 });
  const times: number[] = [];
  for (let i = 0; i < load.requests; i++) {
    const startedAt = performance.now();
    await send(load, dispatcher);
    times.push(performance.now() - startedAt);
  }
  await dispatcher.close();
  return times;
}

async function send(load: Omit<Load, 'clients' | 'requests'>, dispatcher: Agent): Promise<void> {
  const { body, headers, url } = load;
  const answer = await request(url, {
    dispatcher,
    ...(body === undefined
      ? { headers: { ...headers } }
      : { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body }),
  });
  const text = await answer.body.arrayBuffer();
  if (answer.statusCode !== 200) {
    throw new Error(`${url}: ${answer.statusCode} ${Buffer.from(text).toString()}`);
  }
}

export function percentile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export const median = (values: number[]): number => percentile(values, 0.5);
