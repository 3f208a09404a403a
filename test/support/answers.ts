// Reads answers of the platform and checks their shape.
import { expect } from 'vitest';
import { z } from 'zod';
import { STUCK_STATES } from '../../src/wire/job/attempt.ts';
import { ERROR_CODES, JOB_STATUSES, WAIT_CODES } from '../../src/wire/job/job.ts';

const status = z.enum(JOB_STATUSES);
const wholeMs = z.int().min(0);
const errorCode = z.enum(ERROR_CODES);

export const jobRef = z.strictObject({ id: z.string(), status });

/** No other members, and whole milliseconds. */
export const jobRecord = z.strictObject({
  id: z.string(),
  status,
  delayTime: wholeMs,
  executionTime: wholeMs,
  attempt: z.int().min(0),
  output: z.unknown().optional(),
  outputBytes: z.int().exactOptional(),
  workerId: z.string().exactOptional(),
  tags: z.array(z.string()).exactOptional(),
  progress: z.unknown().optional(),
  waitReason: z
    .strictObject({
      code: z.enum(WAIT_CODES),
      message: z.string().min(1),
      since: wholeMs.exactOptional(),
      until: wholeMs.exactOptional(),
    })
    .exactOptional(),
  error: z
    .strictObject({
      code: errorCode,
      message: z.string(),
      type: z.string().exactOptional(),
      stack: z.string().exactOptional(),
      stuck: z
        .strictObject({
          state: z.enum(STUCK_STATES),
          stack: z.string().exactOptional(),
          chunks: z.int().min(0),
          lastChunkMs: wholeMs.exactOptional(),
          eventLoopUtilization: z.number().min(0).max(1).exactOptional(),
          heapUsedBytes: z.int().exactOptional(),
        })
        .exactOptional(),
      attempts: z.array(
        z.strictObject({
          attempt: z.int().min(1),
          run: z.int().min(2).exactOptional(),
          runAttempt: z.int().min(1).exactOptional(),
          code: errorCode,
          message: z.string(),
          workerId: z.string(),
          startedAt: z.int(),
          endedAt: z.int(),
        }),
      ),
    })
    .exactOptional(),
});
export type SeenRecord = z.infer<typeof jobRecord>;

/** The members of the specification and no others. */
export const health = z.strictObject({
  jobs: z.strictObject({
    completed: z.int(),
    failed: z.int(),
    inProgress: z.int(),
    inQueue: z.int(),
    retried: z.int(),
  }),
  workers: z.strictObject({ idle: z.int(), running: z.int() }),
});

export const chunkList = z.array(
  z.strictObject({ output: z.json(), metrics: z.record(z.string(), z.number()) }),
);

/** A page of the list of jobs, newest first. */
export const jobList = z.strictObject({
  jobs: z.array(
    z.strictObject({
      id: z.string(),
      status,
      attempt: z.int().min(0),
      submittedAt: z.int(),
      delayTime: wholeMs,
      executionTime: wholeMs,
      workerId: z.string().exactOptional(),
      tags: z.array(z.string()).exactOptional(),
    }),
  ),
  cursor: z.string().exactOptional(),
});

/** Matches an entry of a problem's `errors` by its path. The wording is for people and may change. */
export function errorAt(path: string) {
  return expect.stringMatching(new RegExp(`^${RegExp.escape(path)}: .`));
}

const problem = z.strictObject({
  title: z.string().min(1),
  status: z.int(),
  detail: z.string().min(1),
  code: z.string(),
  errors: z.array(z.string()).exactOptional(),
});
export type SeenProblem = z.infer<typeof problem>;

export interface ProblemAnswer {
  status: number;
  mediaType: string | null | undefined;
  body: string;
}

/** Fails unless the answer is a whole problem body of this status. */
export function checkProblem(answer: ProblemAnswer, expectedStatus: number): SeenProblem {
  const { body, mediaType, status } = answer;
  expect({ status, mediaType }, body).toEqual({
    status: expectedStatus,
    mediaType: 'application/problem+json',
  });
  const seen = problem.parse(JSON.parse(body));
  expect(seen.status).toBe(expectedStatus);
  return seen;
}

export async function readProblem(response: Response, status: number): Promise<SeenProblem> {
  const mediaType = response.headers.get('content-type');
  return checkProblem({ status: response.status, mediaType, body: await response.text() }, status);
}

/** Returns the body of a 200 answer in the given shape. */
export async function readOk<S extends z.ZodType>(
  response: Response,
  schema: S,
): Promise<z.infer<S>> {
  const body = await response.text();
  expect(response.status, body.slice(0, 1_000)).toBe(200);
  expect(response.headers.get('content-type')).toMatch(/^application\/json/);
  return schema.parse(JSON.parse(body));
}
