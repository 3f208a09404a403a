// The schemas and the types of the same messages: neither has a member that the other has not. The
// compiler is what fails here; for Vitest alone these tests are empty.
import { describe, expectTypeOf, it } from 'vitest';
import type { z } from 'zod';
import type { RunRequest } from '../../../../src/wire/job/job.ts';
import type { runRequest } from '../../../../src/wire/job/job-schemas.ts';
import type * as link from '../../../../src/wire/link/worker-link.ts';
import type * as schemas from '../../../../src/wire/link/worker-link-schemas.ts';

/** One object type instead of an intersection. */
type Flat<T> = T extends unknown ? { [Member in keyof T]: T[Member] } : never;

type Checked<Name extends keyof typeof schemas> = z.infer<(typeof schemas)[Name]>;

describe('the output of a schema', () => {
  it('has exactly the type of the message', () => {
    expectTypeOf<z.infer<typeof runRequest>>().toEqualTypeOf<RunRequest>();
    expectTypeOf<Checked<'workerIdentity'>>().toEqualTypeOf<link.WorkerIdentity>();
    expectTypeOf<Checked<'workerHello'>>().toEqualTypeOf<link.WorkerHello>();
    expectTypeOf<Checked<'workerWelcome'>>().toEqualTypeOf<link.WorkerWelcome>();
    expectTypeOf<Checked<'takeRequest'>>().toEqualTypeOf<link.TakeRequest>();
    expectTypeOf<Checked<'leaseHeader'>>().toEqualTypeOf<link.LeaseHeader>();
    expectTypeOf<Checked<'renewRequest'>>().toEqualTypeOf<link.RenewRequest>();
    expectTypeOf<Checked<'renewReply'>>().toEqualTypeOf<link.RenewReply>();
    expectTypeOf<Checked<'reportHeader'>>().toEqualTypeOf<Flat<link.ReportHeader>>();
    expectTypeOf<Checked<'reportReply'>>().toEqualTypeOf<link.ReportReply>();
    expectTypeOf<Checked<'workerBye'>>().toEqualTypeOf<link.WorkerBye>();
  });
});
