// What a job's handler logged, as it comes.
import { useEffect, useState } from 'preact/hooks';
import { followLog } from '../../../../src/client/job-log.ts';
import { fillPath } from '../../../../src/wire/route.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes.ts';
import { patientCaller } from '../../output/chunk-reader.ts';
import { Problem } from '../../parts/problem.tsx';
import { Time } from '../../parts/time.tsx';
import { asError } from '../../platform/polling.ts';
import { type LogLine, readLines } from './log-lines.ts';

/** Lines that are drawn: the last ones. */
const SHOWN = 500;

export function Log({ endpoint, job }: { endpoint: string; job: string }) {
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [error, setError] = useState<Error>();
  useEffect(() => {
    const abort = new AbortController();
    const path = fillPath(JOB_ROUTES.getJobLog, { endpoint, job });
    const follow = async () => {
      const read: LogLine[] = [];
      for await (const page of followLog(patientCaller, path, { signal: abort.signal })) {
        read.push(...readLines(page.lines + page.note));
        setLines(read.slice());
      }
    };
    follow().catch((reason) => {
      if (!abort.signal.aborted) setError(asError(reason));
    });
    return () => abort.abort();
  }, [endpoint, job]);
  const hidden = lines.length - SHOWN;
  return (
    <section>
      <h2>Log</h2>
      {error && <Problem error={error} />}
      {lines.length === 0 && !error && <p class="muted">The handler has logged nothing.</p>}
      {hidden > 0 && <p class="muted">{hidden.toLocaleString()} earlier lines are not shown.</p>}
      {lines.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it.
        <section class="block-frame log" aria-label="Log lines" tabIndex={0}>
          {lines.slice(-SHOWN).map((line, index) => (
            <p key={Math.max(hidden, 0) + index} class={line.tone}>
              {line.at !== undefined && <Time at={line.at} as="clock" />} {line.text}
              {line.rest && <span class="muted"> {line.rest}</span>}
            </p>
          ))}
        </section>
      )}
    </section>
  );
}
