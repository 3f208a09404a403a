// What a job's handler logged, as it comes.
import { useEffect, useRef, useState } from 'preact/hooks';
import { readLogPage } from '../../../../src/client/jobs/job-reads.ts';
import { fillPath } from '../../../../src/wire/routes/route.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { patientCaller } from '../../output/chunk-reader.ts';
import { LogFrame } from '../../parts/log-frame.tsx';
import { Problem } from '../../parts/problem.tsx';
import { Time } from '../../parts/time.tsx';
import { asError } from '../../platform/polling.ts';
import { type LogLine, readLines } from './log-lines.ts';

/** Lines that are drawn: the last ones. */
const SHOWN = 500;

interface LogProps {
  endpoint: string;
  job: string;
  /** Size of the log now. */
  bytes: number;
  isOver: boolean;
}

interface ReadLog {
  lines: readonly LogLine[];
  /** Where the next read starts. */
  next: number;
  /** How many lines the platform has dropped. */
  note: string;
}

export function Log({ bytes, endpoint, isOver, job }: LogProps) {
  const [read, setRead] = useState<ReadLog>({ lines: [], next: 0, note: '' });
  const [error, setError] = useState<Error>();
  const [isPaused, setPaused] = useState(false);
  const next = useRef(0);
  useEffect(() => {
    if (isPaused) return;
    const abort = new AbortController();
    const path = fillPath(JOB_ROUTES.getJobLog, { endpoint, job });
    const readOn = async () => {
      const page = await readLogPage(patientCaller, path, {
        ...{ after: next.current, signal: abort.signal },
      });
      next.current = page.next;
      setRead(({ lines }) => ({
        ...{ lines: [...lines, ...readLines(page.lines)], next: page.next, note: page.note },
      }));
    };
    readOn().catch((reason) => {
      if (!abort.signal.aborted) setError(asError(reason));
    });
    return () => abort.abort();
  }, [endpoint, job, bytes, isOver, isPaused]);
  const lines = [...read.lines, ...readLines(read.note)];
  const hidden = lines.length - SHOWN;
  return (
    <section>
      <h2>Log</h2>
      {error && <Problem error={error} />}
      {lines.length === 0 && !error && <p class="muted">The handler has logged nothing.</p>}
      {hidden > 0 && <p class="muted">{hidden.toLocaleString()} earlier lines are not shown.</p>}
      {lines.length > 0 && (
        <LogFrame label="Log lines" isPaused={isPaused} onPause={setPaused} isOver={isOver}>
          {lines.slice(-SHOWN).map((line, index) => (
            <p key={Math.max(hidden, 0) + index} class={line.tone}>
              {line.at !== undefined && <Time at={line.at} as="clock" />} {line.text}
              {line.rest && <span class="muted"> {line.rest}</span>}
            </p>
          ))}
        </LogFrame>
      )}
    </section>
  );
}
