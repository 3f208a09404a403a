// What a worker of RunPod's protocol has to do when it is told to leave: nothing that it was given is lost.
import { type Check, Deviation, demandSame, NotApplicable, within } from '../checks.ts';
import { demandCleanExit } from '../worker-exit.ts';
import { type RunPodStand, readMember, type Told } from './stand.ts';

const SOON_MS = 15_000;
/** A second process may have to load a model first. */
const START_MS = 60_000;
const LEAVING_MS = 120_000;
/** A signal that was sent has been handled by then. */
const SIGNAL_MS = 300;
/** What a process had sent when it ended has arrived by then. */
const LAST_WORD_MS = 500;

export const runPodLeavingChecks: readonly Check<RunPodStand>[] = [
  {
    area: 'drain',
    rule: 'ends a running job on SIGTERM and posts its result',
    async run(stand) {
      const { exitCode, terminate } = stand.options;
      const id = stand.submit({ do: 'echo', value: 'last', ms: 2_500 });
      // It is told to leave in any case: the checks behind this one wait for that.
      await stand.handedOut(id, SOON_MS).finally(terminate);
      const end = await findEnd(stand, id, exitCode);
      if (!end) throw new Deviation('its process ended without a word on the job');
      demandSame(readMember(end.body, 'output'), 'last', 'the output');
    },
  },
  {
    area: 'drain',
    rule: 'ends its process with the code 0',
    run: ({ options }) => demandCleanExit(options, LEAVING_MS),
  },
  {
    area: 'drain',
    rule: 'runs a job that is handed over after SIGTERM, or hands it back by an error',
    async run(stand) {
      const { exitCode, startAnother } = stand.options;
      if (!exitCode || !startAnother) {
        throw new NotApplicable('the worker was not started by this command');
      }
      await within(LEAVING_MS, 'the process before it did not end', exitCode);
      const count = stand.of('job-take').length;
      const another = startAnother();
      // While it waits for a job, with nothing to do.
      await stand.until(START_MS, 'no take of a second process came', () => {
        return stand.of('job-take')[count];
      });
      another.terminate();
      await new Promise((resolve) => setTimeout(resolve, SIGNAL_MS));
      const id = stand.submit({ do: 'echo', value: 'late' });
      const end = await findEnd(stand, id, another.exitCode);
      if (!end) {
        if (!stand.isHandedOut(id)) return;
        throw new Deviation('it took the job, and its process ended without a word on it');
      }
      if (typeof readMember(end.body, 'error') === 'string') return;
      demandSame(readMember(end.body, 'output'), 'late', 'the output');
    },
  },
];

/** What was said of the job; undefined when the process has ended and nothing was. @throws Deviation */
async function findEnd(
  stand: RunPodStand,
  id: string,
  exitCode: Promise<number | null> | undefined,
): Promise<Told | undefined> {
  let isGone = false;
  void exitCode?.then(async () => {
    await new Promise((resolve) => setTimeout(resolve, LAST_WORD_MS));
    isGone = true;
    stand.look();
  });
  const end = await stand.until(LEAVING_MS, 'no result came', () => {
    return stand.results(id)[0] ?? (isGone ? 'gone' : undefined);
  });
  return end === 'gone' ? undefined : end;
}
