// Validates the contents of a worker's questions, and encodes leases as messages.
import type { z } from 'zod';
import type { Lease, Report } from '../../wire/link/worker-link.ts';
import { reportHeader } from '../../wire/link/worker-link-schemas.ts';
import { cutPayload, readBodySizes } from '../../wire/link/worker-stream.ts';
import { describeIssues, ProblemError } from '../../wire/problem.ts';

const NO_BYTES = new Uint8Array(0);
/** `name` is the content's name in errors. @throws ProblemError `invalid` */
export function checkContent<S extends z.ZodType>(
  content: unknown,
  schema: S,
  name: string,
): z.infer<S> {
  const checked = schema.safeParse(content);
  if (checked.success) return checked.data;
  const errors = describeIssues(checked.error, name);
  throw new ProblemError('invalid', `${name} is invalid: ${errors[0]}`, { errors });
}

/** Sizes in the payload of `reports`. */
export function readReportSizes(content: unknown): number[] {
  return readBodySizes(listReports(content));
}

/** @throws ProblemError `invalid` that names the report */
export function readReports(content: unknown, bodies: readonly Uint8Array[]): Report[] {
  return listReports(content).map((header, index) => {
    const given = dropDefaults(header);
    const checked = checkContent(given, reportHeader, `reports[${index}]`);
    return { ...checked, body: bodies[index] ?? NO_BYTES };
  });
}

/** In many languages, copying an absent optional member sends its default value. */
function dropDefaults(header: unknown): object {
  const members = Object.entries(Object(header));
  return Object.fromEntries(
    members.filter(
      ([name, value]) =>
        !(name === 'traceparent' && value === '') && !(name === 'recycle' && value === false),
    ),
  );
}

function listReports(content: unknown): unknown[] {
  const hasReports = typeof content === 'object' && content !== null && 'reports' in content;
  return hasReports && Array.isArray(content.reports) ? content.reports : [];
}

/** `ToWorker` messages, created on demand; `first` has the members of the first one besides the leases. */
export function* listLeases(
  first: { call: number; ownerUrl?: string },
  leases: readonly Lease[],
): Generator<object, void, void> {
  const headers = leases.map(({ input, ...header }) => ({ ...header, bodyBytes: input.length }));
  let isFirst = true;
  for (const payload of cutPayload(leases.map(({ input }) => input))) {
    yield isFirst
      ? { ...first, leases: { leases: headers, payload } }
      : { call: first.call, piece: { payload } };
    isFirst = false;
  }
}
