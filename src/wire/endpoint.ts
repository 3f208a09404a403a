// What an endpoint is, apart from the jobs in it.
import { z } from 'zod';
import { executionTimeoutMs } from './job-schemas.ts';

/** Names that the pod API needs for itself below `/v2/`. */
const RESERVED_ENDPOINT_IDS = ['pods', 'catalog'];

export const endpointId = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, 'must be 1 to 64 letters, digits, "-" or "_"')
  .refine((id) => !RESERVED_ENDPOINT_IDS.includes(id), 'is reserved');

export const endpointSettings = z.strictObject({
  /** Default execution timeout of its jobs, ms. */
  executionTimeoutMs: executionTimeoutMs.default(600_000),
  /** Failures after which a job is FAILED. */
  maxAttempts: z.int().min(1).max(100).default(3),
  /** Jobs waiting, delayed ones included, above which run and runsync are refused. */
  maxQueued: z.int().min(1).default(100_000),
});

export type EndpointSettings = z.infer<typeof endpointSettings>;

/** The answer of `GET /v2/<endpoint>/health`. */
export interface EndpointHealth {
  jobs: {
    completed: number;
    failed: number;
    inProgress: number;
    inQueue: number;
    retried: number;
  };
  workers: { idle: number; running: number };
}
