// The answers of the OpenAI API: the one answer of a request without `stream`, from the record of its ended job, and
// the errors that failed jobs and handlers' answers become.
import { z } from 'zod';
import { runInSlices } from '../../base/slices.ts';
import type { ReadRecord } from '../../queue/jobs.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import { type ErrorCode, isTerminal, type JobStatus, LIMITS } from '../../wire/job/job.ts';
import { isPlainObject } from '../../wire/json.ts';
import { type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { findOnlyElement } from '../body/json-check.ts';
import { type BytesAnswer, JSON_MEDIA_TYPE } from '../http/byte-reply.ts';
import type { ErrorForm } from '../http/problem-reply.ts';

/** Larger answers are no errors and no texts: they are sent without being parsed. */
const MAX_PARSED_BYTES = 1_048_576;

const TEXT_MEDIA_TYPE = 'text/plain; charset=utf-8';

export interface OpenAiAnswer extends BytesAnswer {
  status: number;
}

export function answerError({ error, status }: OpenAiError): OpenAiAnswer {
  const pieces = [Buffer.from(JSON.stringify({ error }))];
  return { status, mediaType: JSON_MEDIA_TYPE, pieces };
}

/** `owner`: large outputs of one user are scanned one after the other. */
export async function composeAnswer(record: ReadRecord, owner: string): Promise<OpenAiAnswer> {
  if (!isTerminal(record.status)) return answerError(TIMED_OUT);
  const { error, output } = open(record);
  if (record.status !== 'COMPLETED') return answerError(describeFailure(record.status, error));
  if (!output) return answerError(describeMissing(record));
  return answerOutput(await unwrap(output, owner));
}

/** The record has no output if the handler has none, and if a streamed one is too large. */
function describeMissing(record: ReadRecord): OpenAiError {
  const bytes: number[] = [];
  record.compose((job) => {
    bytes.push(job.chunkBytes);
    return [];
  });
  const isLarge = Number(bytes[0]) > 0;
  const detail = isLarge ? `an answer of more than ${LIMITS.outputBytes} bytes` : 'no answer';
  return describeError(502, `The handler gave ${detail}.`, 'output_invalid');
}

function open(record: ReadRecord): { error: AttemptError | null; output: Buffer | undefined } {
  const errors: (AttemptError | null)[] = [];
  const pieces = record.compose((job, _now, output) => {
    errors.push(job.error);
    return output ? [output] : [];
  });
  return {
    error: errors[0] ?? null,
    output: pieces.length > 0 ? Buffer.concat(pieces) : undefined,
  };
}

/** A generator's output is the array of what it yielded; the answer is the one element. */
async function unwrap(output: Buffer, owner: string): Promise<Buffer> {
  return (await runInSlices(owner, findOnlyElement(output))) ?? output;
}

function answerOutput(output: Buffer): OpenAiAnswer {
  const sent = { status: 200, mediaType: JSON_MEDIA_TYPE, pieces: [output] };
  if (output.length > MAX_PARSED_BYTES) return sent;
  const value: unknown = JSON.parse(output.toString());
  if (typeof value === 'string') return answerText(value);
  if (typeof value !== 'object' || value === null) {
    return answerError(
      describeError(502, 'The handler gave neither an object nor a text.', 'output_invalid'),
    );
  }
  const error = findError(value);
  return error ? answerError(error) : sent;
}

/** A text is JSON that the handler has not parsed, or the whole answer, such as a transcription. */
function answerText(text: string): OpenAiAnswer {
  if (!text.trimStart().startsWith('{') || parseJson(text) === undefined) {
    return { status: 200, mediaType: TEXT_MEDIA_TYPE, pieces: [Buffer.from(text)] };
  }
  return answerOutput(Buffer.from(text));
}

const list = z.object({ data: z.array(z.looseObject({ id: z.string() })) });

/**
 * Picks one model from the answer that lists the models: vLLM's workers have no route for one model.
 */
export function pickModel(answer: OpenAiAnswer, id: string): OpenAiAnswer {
  if (answer.status !== 200) return answer;
  const { data, success } = list.safeParse(parseList(Buffer.concat(answer.pieces)));
  if (!success) {
    const detail = 'The handler gave no list of models for /v1/models.';
    return answerError(describeError(502, detail, 'output_invalid'));
  }
  const model = data.data.find((each) => each.id === id);
  if (model) return { ...answer, pieces: [Buffer.from(JSON.stringify(model))] };
  const detail = `The model ${JSON.stringify(id)} does not exist; GET /v1/models lists the models.`;
  return answerError(describeError(404, detail, 'model_not_found'));
}

/** More models than any server has, bytes. */
const MAX_LIST_BYTES = 1_048_576;

function parseList(json: Buffer): unknown {
  return json.length > MAX_LIST_BYTES ? undefined : parseJson(json.toString());
}

/** Undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Ends the stream with an error of the job's output, or of the wait for it. */
export class FailedStream extends Error {
  readonly shown: OpenAiError;

  constructor(shown: OpenAiError) {
    super('the stream ends with an error');
    this.shown = shown;
  }
}

export interface OpenAiError {
  status: number;
  /** As in the answer: with `message`, `type` and `code`. */
  error: object;
}

/** Clients of this API repeat a request after 409, so a conflict that stays is 400, like invalid bodies. */
const STATUSES: Partial<Record<ProblemCode, number>> = { conflict: 400, invalid: 400 };

/** The codes that clients of this API know. Other codes are Millrace's. */
const CODES: Partial<Record<ProblemCode, string>> = {
  unauthorized: 'invalid_api_key',
  rate_limited: 'rate_limit_exceeded',
};

export const OPENAI_ERRORS: ErrorForm = {
  mediaType: JSON_MEDIA_TYPE,
  status: ({ code, status }) => STATUSES[code] ?? status,
  body: ({ code, message, status }) =>
    composeError(STATUSES[code] ?? status, message, CODES[code] ?? code),
};

export function describeProblem(problem: ProblemError): OpenAiError {
  const { code, message } = problem;
  return describeError(OPENAI_ERRORS.status(problem), message, CODES[code] ?? code);
}

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  429: 'rate_limit_error',
  499: 'request_cancelled',
};

/** The body of an error answer. */
export function composeError(status: number, message: string, code: string): { error: object } {
  const type = TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error');
  return { error: { message, type, param: null, code } };
}

export function describeError(status: number, message: string, code: string): OpenAiError {
  return { status, ...composeError(status, message, code) };
}

/** The job did not end in time. */
export const TIMED_OUT = describeError(
  504,
  'No worker has answered in time; the job was cancelled.',
  'timeout',
);

/** "Client closed request": OpenAI's clients do not repeat a request after it, as they do after 409 and 500. */
const CANCELLED_STATUS = 499;

/** Errors that the request has caused, not the handler. */
const CALLERS_FAULTS: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['input_invalid']);

/** The error of a job that has ended without a result. */
export function describeFailure(status: JobStatus, error: AttemptError | null): OpenAiError {
  if (status === 'CANCELLED') {
    return describeError(CANCELLED_STATUS, 'The job was cancelled.', 'cancelled');
  }
  const { code, message } = error ?? { code: 'handler_error', message: 'The job failed.' };
  if (status === 'TIMED_OUT') return describeError(504, message, code);
  if (!CALLERS_FAULTS.has(code)) return describeError(500, message, code);
  return describeError(error?.type === 'NotFoundError' ? 404 : 400, message, code);
}

/**
 * The error in an answer of the handler: `{ error: { message, … } }`, `{ error: "text" }`, or
 * `{ object: "error", message, … }` as vLLM wrote it before. A `code` that is an HTTP status becomes the status.
 * Undefined if the answer is no error.
 */
export function findError(answer: unknown): OpenAiError | undefined {
  if (!isPlainObject(answer)) return undefined;
  const { error, object } = answer;
  if (typeof error === 'string') return describeError(500, error, 'handler_error');
  if (isPlainObject(error)) return { status: readStatus(error), error };
  if (object !== 'error') return undefined;
  const { object: _object, ...rest } = answer;
  return { status: readStatus(rest), error: rest };
}

function readStatus({ code, type }: Record<string, unknown>): number {
  const status = Number(code);
  if (Number.isInteger(status) && status >= 400 && status <= 599) return status;
  return /invalid_?request|bad_?request/i.test(String(type)) ? 400 : 500;
}

export function describeStop(): ProblemError {
  const detail = 'The platform is stopping; send the request again.';
  return new ProblemError('unavailable', detail, { retryAfterMs: 1_000 });
}
