// What the API of a batch decides: how a line of its input becomes a job, and how the end of that job becomes a line of its
// results.
import type { JobAttachment } from '../../store/store.ts';
import { ReadRecord } from '../jobs.ts';

/** A line of the input. */
export interface BatchLine {
  /** The caller's name for it, unique in the file. */
  customId: string;
  /** What all lines of a file must have in common; empty if nothing. */
  target: string;
  /** JSON. May be a view into the line. */
  input: Uint8Array;
}

export interface BatchFailure {
  code: 'batch_cancelled' | 'batch_expired' | 'job_removed' | 'line_invalid';
  message: string;
}

/** What became of a line. */
export interface BatchResult {
  customId: string;
  /** Counted from 1. */
  line: number;
  jobId: string;
  /** Of the job that has ended, or why there is none. */
  end: ReadRecord | BatchFailure;
}

export interface ResultLine {
  /** It belongs into the file of failures. */
  isFailed: boolean;
  /** JSON. */
  pieces: readonly Uint8Array[];
}

export interface BatchForm {
  /** `owner`: large lines of one owner are checked one after the other. @throws ProblemError that names the path */
  readLine(line: Buffer, owner: string): Promise<BatchLine>;
  writeResult(result: BatchResult, owner: string): Promise<ResultLine>;
  attachment: JobAttachment | null;
  /** Members of a line, for refusals. */
  names: { customId: string; target: string };
}

/** By the name that the record of a batch has. */
export type BatchForms = Readonly<Record<string, BatchForm>>;

/** @throws Error if an older version has left the form */
export function findForm(forms: BatchForms, name: string): BatchForm {
  const form = forms[name];
  if (!form) throw new Error(`no form of batches is named ${name}`);
  return form;
}

/** In Millrace's own form: the line has the record of the job. */
export async function writeOwnResult({ customId, end }: BatchResult): Promise<ResultLine> {
  const head = `{"id":${JSON.stringify(customId)},`;
  if (!(end instanceof ReadRecord)) {
    return { isFailed: true, pieces: [Buffer.from(`${head}"error":${JSON.stringify(end)}}`)] };
  }
  const pieces = [Buffer.from(`${head}"job":`), ...end.pieces, Buffer.from('}')];
  return { isFailed: end.status !== 'COMPLETED', pieces };
}
