// Checks that a worker of RunPod's protocol loses no job on SIGTERM.
import { type ConformanceCheck, Deviation, demandSame, NotApplicable, within } from '../checks.ts';
import { demandCleanExit } from '../worker-exit.ts';
import { type RecordedRequest, type RunPodStand, readMember } from './stand.ts';

const SOON_MS = 15_000;
/** A second process may have to load a model first. */
const START_MS = 60_000;
const EXIT_MS = 120_000;
/** Time for a process to handle a signal. */
const SIGNAL_MS = 300;
/** Time for the last data of an exited process to arrive. */
const LAST_DATA_MS = 500;

export const runPodExitChecks: readonly ConformanceCheck<RunPodStand>[] = [
  {
    area: 'drain',
    rule: 'completes the running job after SIGTERM and posts its result',
    async run(stand) {
      const { exitCode, terminate } = stand.options;
      const id = stand.submit({ do: 'echo', value: 'last', ms: 2_500 });
      // SIGTERM even if the job is never taken: the next checks wait for the exit.
      await stand.handedOut(id, SOON_MS).finally(terminate);
      const end = await findEnd(stand, id, exitCode);
      if (!end)
        throw new Deviation("the worker's process exited without posting a result of the job");
      demandSame(readMember(end.body, 'output'), 'last', 'the output');
    },
  },
  {
    area: 'drain',
    rule: 'exits with code 0',
    run: ({ options }) => demandCleanExit(options, EXIT_MS),
  },
  {
    area: 'drain',
    rule: 'runs a job that arrives after SIGTERM, or returns it with an error',
    async run(stand) {
      const { exitCode, startAnother } = stand.options;
      if (!exitCode || !startAnother) {
        throw new NotApplicable('this command did not start the worker');
      }
      await within(EXIT_MS, 'the previous process did not exit', exitCode);
      const count = stand.of('job-take').length;
      const another = startAnother();
      // The SIGTERM must come while the process waits for a job.
      await stand.until(START_MS, 'the second process sent no take', () => {
        return stand.of('job-take')[count];
      });
      another.terminate();
      await new Promise((resolve) => setTimeout(resolve, SIGNAL_MS));
      const id = stand.submit({ do: 'echo', value: 'late' });
      const end = await findEnd(stand, id, another.exitCode);
      if (!end) {
        if (!stand.isHandedOut(id)) return;
        throw new Deviation('the worker took the job and exited without posting a result');
      }
      if (typeof readMember(end.body, 'error') === 'string') return;
      demandSame(readMember(end.body, 'output'), 'late', 'the output');
    },
  },
];

/**
 * Returns the job's result; undefined if the process exited without posting one. @throws Deviation
 */
async function findEnd(
  stand: RunPodStand,
  id: string,
  exitCode: Promise<number | null> | undefined,
): Promise<RecordedRequest | undefined> {
  let isGone = false;
  void exitCode?.then(async () => {
    await new Promise((resolve) => setTimeout(resolve, LAST_DATA_MS));
    isGone = true;
    stand.check();
  });
  const end = await stand.until(EXIT_MS, 'no result was posted', () => {
    return stand.results(id)[0] ?? (isGone ? 'gone' : undefined);
  });
  return end === 'gone' ? undefined : end;
}
