// Asks nodes that may be killed or paused while they answer.
import { z } from 'zod';
import type { PlatformProcess } from '../processes.ts';
import { until } from '../until.ts';

/** A paused node never answers. */
const LIMIT_MS = 3_000;
const PAUSE_MS = 100;

export interface Answer {
  status: number;
  body: unknown;
}

export interface Question {
  method?: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  path: string;
  body?: unknown;
}

const problem = z.object({ code: z.string() });

export class AnyAnswer {
  readonly #nodes: readonly PlatformProcess[];
  readonly #random: () => number;

  constructor(nodes: readonly PlatformProcess[], random: () => number) {
    this.#nodes = nodes;
    this.#random = random;
  }

  /** Asks one node. @returns undefined if it does not answer: the request may have had its effect */
  async ask({ body, method = 'GET', path }: Question): Promise<Answer | undefined> {
    const node = this.#nodes[Math.floor(this.#random() * this.#nodes.length)];
    try {
      const response = await node?.fetch(path, {
        ...{ method, signal: AbortSignal.timeout(LIMIT_MS) },
        ...(body !== undefined && {
          body: JSON.stringify(body),
          headers: { 'content-type': 'application/json' },
        }),
      });
      if (!response) throw new Error('there are no nodes');
      const text = await response.text();
      return { status: response.status, body: text === '' ? undefined : JSON.parse(text) };
    } catch (error) {
      if (error instanceof TypeError || isTimeout(error)) return undefined;
      throw error;
    }
  }

  /** Asks until a node answers, and not that the platform is busy with a change of its leader. */
  insist(question: Question): Promise<Answer> {
    return until(
      async () => {
        const answer = await this.ask(question);
        return answer && answer.status < 500 && answer.status !== 429 && answer;
      },
      { everyMs: PAUSE_MS, limitMs: 120_000 },
    );
  }
}

export function codeOf({ body }: Answer): string | undefined {
  return problem.safeParse(body).data?.code;
}

function isTimeout(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'TimeoutError';
}
