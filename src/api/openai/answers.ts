// Makes the one answer of a request without `stream` from the record of its ended job.
import { z } from 'zod';
import { runInSlices } from '../../base/slices.ts';
import type { ReadRecord } from '../../queue/jobs.ts';
import { type AttemptError, isTerminal, LIMITS } from '../../wire/job/job.ts';
import { findOnlyElement } from '../body/json-check.ts';
import { type BytesAnswer, JSON_MEDIA_TYPE } from '../http/byte-reply.ts';
import { describeError, describeFailure, findError, type OpenAiError } from './errors.ts';

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

/** The job did not end in time. */
export const TIMED_OUT = describeError(
  504,
  'No worker has answered in time; the job was cancelled.',
  'timeout',
);

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
  if (!isJsonObject(text)) {
    return { status: 200, mediaType: TEXT_MEDIA_TYPE, pieces: [Buffer.from(text)] };
  }
  return answerOutput(Buffer.from(text));
}

function isJsonObject(text: string): boolean {
  if (!text.trimStart().startsWith('{')) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const list = z.object({ data: z.array(z.looseObject({ id: z.string() })) });

/**
 * Picks one model from the answer that lists the models: vLLM's workers have no route for one model.
 */
export function pickModel(answer: OpenAiAnswer, id: string): OpenAiAnswer {
  if (answer.status !== 200) return answer;
  const { data, success } = list.safeParse(parse(Buffer.concat(answer.pieces)));
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

function parse(json: Buffer): unknown {
  if (json.length > MAX_LIST_BYTES) return undefined;
  try {
    return JSON.parse(json.toString());
  } catch {
    return undefined;
  }
}
