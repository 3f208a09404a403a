// Reports against a scripted queue: their order, what travels together, and what the answers do.
import { describe, expect, it } from 'vitest';
import { LinkError, type Report, type ReportReply } from '../../../../src/wire/link/worker-link.ts';
import type { ScriptedExecution } from '../../../support/workers/worker-script.ts';
import {
  lease,
  nameReport,
  type Script,
  script,
  startScript,
  welcome,
} from '../../../support/workers/worker-script.ts';

const text = (body: Uint8Array) => Buffer.from(body).toString();
const applyAll = (reports: Report[]): ReportReply[] => reports.map(() => ({ answer: 'applied' }));

function sendChunk(execution: ScriptedExecution, json: string): void {
  const bytes = Buffer.from(json);
  execution.sink.chunks({ sizes: [bytes.length], bytes });
}

/** A worker with the named jobs running, and the executions of them. */
async function startWithJobs(...jobIds: string[]): Promise<Script> {
  const started = await startScript();
  started.link.lastTake.answer(jobIds.map((id) => lease(id)));
  await started.clock.advance(0);
  return started;
}

/** Keeps the calls open; `answer` answers the one under way. */
function holdReports({ link, clock }: Script) {
  const open: ((replies: ReportReply[]) => void)[] = [];
  link.onReport = () => new Promise((resolve) => open.push(resolve));
  return {
    async answer(...answers: ReportReply[]): Promise<void> {
      open.shift()?.(answers);
      await clock.advance(0);
    },
  };
}

function lastReports({ link }: Script): Report[] {
  return link.reportCalls.at(-1)?.reports ?? [];
}

describe('the reporter', () => {
  it('sends the reports of one turn in one call, numbered from 1 in each attempt', async () => {
    const { clock, executor, link } = await startWithJobs('a', 'b');
    const [a, b] = executor.executions;
    a?.sink.progress(Buffer.from('1'));
    b?.sink.log(Buffer.from('{}\n'), 0);
    if (a) sendChunk(a, '"x"');
    await clock.advance(0);
    a?.complete();
    await clock.advance(0);
    expect(link.reportCalls.map(({ reports }) => reports.map(nameReport))).toEqual([
      ['a#1 progress', 'a#2 chunks', 'b#1 log'],
      ['a#3 completed'],
    ]);
    expect(link.reportCalls[0]).toMatchObject({ workerId: 'w1', incarnation: 3 });
  });

  it('sends the reports of each attempt in separate parallel calls if the link asks for it', async () => {
    const started = script();
    const { clock, executor, link, worker } = started;
    link.onHello = async () => ({ ...welcome, reportsBy: 'attempt' });
    await worker.start();
    await clock.advance(0);
    link.lastTake.answer([lease('a'), lease('b')]);
    await clock.advance(0);
    const open = holdReports(started);
    const [a, b] = executor.executions;
    a?.sink.progress(Buffer.from('1'));
    b?.sink.progress(Buffer.from('1'));
    await clock.advance(0);
    if (a) sendChunk(a, '"x"');
    b?.complete();
    await clock.advance(0);
    const sent = () => link.reportCalls.map(({ reports }) => reports.map(nameReport));
    expect(sent()).toEqual([['a#1 progress'], ['b#1 progress']]);
    await open.answer({ answer: 'applied' });
    expect(sent().slice(2)).toEqual([['a#2 chunks']]);
    await open.answer({ answer: 'applied' });
    expect(sent().slice(3)).toEqual([['b#2 completed']]);
  });

  it('names the job’s own trace in each of its reports', async () => {
    const { clock, executor, link } = await startScript();
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    link.lastTake.answer([lease('a', { traceparent, tracestate: 'b=c' }), lease('b')]);
    await clock.advance(0);
    for (const execution of executor.executions) {
      sendChunk(execution, '1');
      execution.sink.log(Buffer.from('{}\n'), 0);
      execution.complete();
    }
    await clock.advance(0);
    const traces = link.reportCalls.flatMap(({ reports }) =>
      reports.map((report) => [report.jobId, report.traceparent]),
    );
    expect(traces).toEqual([
      ...[1, 2, 3].map(() => ['a', traceparent]),
      ...[1, 2, 3].map(() => ['b', undefined]),
    ]);
  });

  it('has one call in progress; later reports go with the next call, with merged chunks', async () => {
    const started = await startWithJobs('a');
    const { clock, executor, link } = started;
    const held = holdReports(started);
    sendChunk(executor.last, '"first"');
    await clock.advance(0);
    for (const json of ['"b"', '"cc"', '"ddd"']) {
      sendChunk(executor.last, json);
      await clock.advance(0);
    }
    expect(link.reportCalls).toHaveLength(1);
    await held.answer({ answer: 'applied' });
    const [merged] = lastReports(started);
    expect(merged).toMatchObject({ seq: 2, first: 1, sizes: [3, 4, 5] });
    expect(text(merged?.body ?? new Uint8Array())).toBe('"b","cc","ddd"');
  });

  it('merges chunks only up to about 1 MB', async () => {
    const started = await startWithJobs('a');
    const { clock, executor } = started;
    const held = holdReports(started);
    sendChunk(executor.last, '"first"');
    await clock.advance(0);
    for (let count = 0; count < 3; count++) sendChunk(executor.last, `"${'x'.repeat(400_000)}"`);
    await held.answer({ answer: 'applied' });
    expect(
      lastReports(started).map((report) => report.kind === 'chunks' && report.sizes.length),
    ).toEqual([2, 1]);
  });

  it('limits a call to about 4 MB and sends a larger report alone', async () => {
    const started = await startWithJobs('a', 'b', 'c');
    const { clock, executor, link } = started;
    const held = holdReports(started);
    for (const [index, execution] of executor.executions.entries()) {
      execution.complete(`"${'x'.repeat(index === 1 ? 5_000_000 : 10)}"`);
    }
    await clock.advance(0);
    await held.answer({ answer: 'applied' });
    await held.answer({ answer: 'applied' });
    expect(link.reportCalls.map(({ reports }) => reports.map(nameReport))).toEqual([
      ['a#1 completed'],
      ['b#1 completed'],
      ['c#1 completed'],
    ]);
  });

  it('replaces a progress value that still waits', async () => {
    const started = await startWithJobs('a');
    const { clock, executor } = started;
    const held = holdReports(started);
    sendChunk(executor.last, '"x"');
    await clock.advance(0);
    for (const value of ['1', '2', '3']) executor.last.sink.progress(Buffer.from(value));
    await held.answer({ answer: 'applied' });
    expect(lastReports(started).map(({ body }) => text(body))).toEqual(['3']);
  });

  it('drops excess log lines and reports how many', async () => {
    const started = await startWithJobs('a');
    const { clock, executor } = started;
    const held = holdReports(started);
    sendChunk(executor.last, '"x"');
    await clock.advance(0);
    const lines = Buffer.from(`"${'x'.repeat(99_997)}"\n`.repeat(2));
    for (let count = 0; count < 3; count++) executor.last.sink.log(lines, 1);
    await held.answer({ answer: 'applied' });
    expect(lastReports(started)[0]).toMatchObject({ kind: 'log', dropped: 7, body: lines });
  });

  it('joins log lines that wait, but not with lines under way', async () => {
    const started = await startWithJobs('a');
    const { clock, executor, link } = started;
    const held = holdReports(started);
    const addLog = (line: string) => executor.last.sink.log(Buffer.from(line), 0);
    addLog('1\n');
    await clock.advance(0);
    addLog('2\n');
    executor.last.sink.progress(Buffer.from('5'));
    addLog('3\n');
    await held.answer({ answer: 'applied' });
    const bodies = link.reportCalls.map(({ reports }) => reports.map(({ body }) => text(body)));
    expect(bodies).toEqual([['1\n'], ['2\n3\n', '5']]);
  });

  it('grants the bytes of delivered chunks, applied or duplicate', async () => {
    const started = await startWithJobs('a');
    const { clock, executor } = started;
    const held = holdReports(started);
    sendChunk(executor.last, '"first"');
    await clock.advance(0);
    expect(executor.last.granted).toBe(0);
    await held.answer({ answer: 'applied' });
    expect(executor.last.granted).toBe(7);
    sendChunk(executor.last, '"b"');
    await clock.advance(0);
    await held.answer({ answer: 'duplicate' });
    expect(executor.last.granted).toBe(10);
  });

  it('repeats a failed call with the same reports until it is answered', async () => {
    const { clock, executor, link } = await startWithJobs('a');
    link.onReport = () => Promise.reject(new LinkError('unavailable', 'not now'));
    executor.last.complete('"done"');
    await clock.advance(120_000);
    expect(link.reportCalls.length).toBeGreaterThan(10);
    link.onReport = async (reports) => applyAll(reports);
    await clock.advance(10_000);
    const [first, ...others] = link.reportCalls;
    expect(others.every((call) => call.reports[0] === first?.reports[0])).toBe(true);
    expect(link.lastTake.request.held).toEqual(['token-a']);
  });

  it('sends nothing after the worker has ended', async () => {
    const { clock, executor, link, worker } = await startWithJobs('a');
    link.onReport = () => Promise.reject(new LinkError('unavailable', 'not now'));
    executor.last.complete('"done"');
    await clock.advance(0);
    const stopped = worker.stop();
    link.lastTake.fail(new LinkError('unavailable', 'not now'));
    await clock.advance(60_000);
    expect((await stopped).delivered).toBe(false);
    const calls = link.reportCalls.length;
    await clock.advance(600_000);
    expect(link.reportCalls).toHaveLength(calls);
  });

  it('aborts a call that hangs, but not a large call over a slow link', async () => {
    const { clock, executor, link } = await startWithJobs('a');
    link.onReport = () => new Promise(() => {});
    executor.last.complete(JSON.stringify('x'.repeat(20_000_000)));
    await clock.advance(240_000);
    expect(link.reportCalls).toHaveLength(1);
    await clock.advance(61_000);
    expect(link.reportCalls).toHaveLength(2);
  });

  it('resends from the missing report', async () => {
    const started = await startWithJobs('a');
    const { clock, executor, link } = started;
    const held = holdReports(started);
    executor.last.sink.progress(Buffer.from('1'));
    sendChunk(executor.last, '"x"');
    executor.last.sink.log(Buffer.from('{}\n'), 0);
    await clock.advance(0);
    await held.answer(
      { answer: 'applied' },
      { answer: 'gap', expected: 2 },
      { answer: 'gap', expected: 2 },
    );
    expect(link.reportCalls.map(({ reports }) => reports.map(nameReport))).toEqual([
      ['a#1 progress', 'a#2 chunks', 'a#3 log'],
      ['a#2 chunks', 'a#3 log'],
    ]);
  });

  it('abandons an attempt if an acknowledged report is missing', async () => {
    const started = await startWithJobs('a');
    const { clock, executor, link } = started;
    const held = holdReports(started);
    sendChunk(executor.last, '"x"');
    await clock.advance(0);
    await held.answer({ answer: 'applied' });
    executor.last.complete();
    await clock.advance(0);
    await held.answer({ answer: 'gap', expected: 1 });
    expect(link.reportCalls).toHaveLength(2);
    link.lastTake.answer([]);
    await clock.advance(0);
    expect(link.lastTake.request.held).toEqual([]);
  });

  it('stops a superseded attempt as lost, forgets its chunks, and still delivers its outcome', async () => {
    const started = await startWithJobs('a');
    const { clock, executor, link } = started;
    const held = holdReports(started);
    sendChunk(executor.last, '"x"');
    await clock.advance(0);
    sendChunk(executor.last, '"y"');
    await held.answer({ answer: 'superseded' });
    expect(executor.last.stops).toEqual(['lost']);
    sendChunk(executor.last, '"z"');
    executor.last.finish({
      outcome: { kind: 'cancelled', executionMs: 1, stopped: 'signal' },
      output: undefined,
    });
    await clock.advance(0);
    await held.answer({ answer: 'gap', expected: 1 });
    await held.answer({ answer: 'applied' });
    expect(link.reported).toEqual(['a#1 chunks', 'a#3 cancelled', 'a#1 cancelled']);
  });

  it('forgets an attempt whose job is gone, and its lease', async () => {
    const started = await startWithJobs('a');
    const { clock, executor, link } = started;
    const held = holdReports(started);
    executor.last.sink.progress(Buffer.from('1'));
    await clock.advance(0);
    await held.answer({ answer: 'gone' });
    expect(executor.last.stops).toEqual(['lost']);
    link.lastRenewal.answer({ ended: [], drain: false });
    await clock.advance(0);
    expect(link.lastRenewal.request.leases).toEqual([]);
    executor.last.complete();
    await clock.advance(0);
    expect(link.reported).toEqual(['a#1 progress']);
  });

  it('finds the refused report, fails its attempt, and delivers the others', async () => {
    const { clock, executor, link } = await startWithJobs('a', 'b', 'c');
    const applied: string[] = [];
    link.onReport = async (reports) => {
      const bad = reports.some((r) => r.kind === 'outcome' && r.jobId === 'b' && r.body.length > 0);
      if (bad) throw new LinkError('invalid', 'too large');
      applied.push(...reports.map(nameReport));
      return applyAll(reports);
    };
    for (const execution of executor.executions) execution.complete();
    await clock.advance(0);
    expect(applied).toEqual(['a#1 completed', 'c#1 completed', 'b#1 failed']);
    const verdict = link.reportCalls.at(-1)?.reports[0];
    expect(verdict).toMatchObject({
      outcome: { kind: 'failed', executionMs: 7, error: { code: 'output_invalid' } },
    });
  });

  it('fails a running attempt whose chunk is refused, instead of delivering its outcome', async () => {
    const { clock, executor, link } = await startWithJobs('a');
    link.onReport = async (reports) => {
      if (reports.some(({ kind }) => kind === 'chunks'))
        throw new LinkError('invalid', 'bad chunk');
      return applyAll(reports);
    };
    sendChunk(executor.last, '"x"');
    await clock.advance(0);
    expect(executor.last.stops).toEqual(['lost']);
    executor.last.complete();
    await clock.advance(0);
    expect(link.reported).toEqual(['a#1 chunks', 'a#1 failed']);
  });

  it('forgets an attempt whose failure is refused too, and continues with the others', async () => {
    const { clock, executor, link, worker } = await startWithJobs('a', 'b');
    link.onReport = async (reports) => {
      if (reports.some(({ jobId }) => jobId === 'a')) throw new LinkError('invalid', 'no');
      return applyAll(reports);
    };
    for (const execution of executor.executions) execution.complete();
    await clock.advance(0);
    expect(worker.health().outboxDepth).toBe(0);
    expect(link.reported.at(-1)).toBe('a#1 failed');
  });
});
