// The chunks of a job: at once while it runs, on demand afterwards.
import { useEffect, useState } from 'preact/hooks';
import type { StreamChunk } from '../../../../src/client.ts';
import { collectChunks } from '../../output/chunk-reader.ts';
import { Chunks } from '../../output/chunks.tsx';
import { Problem } from '../../parts/problem.tsx';
import { asError } from '../../platform/polling.ts';

interface JobChunksProps {
  endpoint: string;
  job: string;
  isRunning: boolean;
}

export function JobChunks({ endpoint, isRunning, job }: JobChunksProps) {
  const [isOpen, setOpen] = useState(isRunning);
  const [chunks, setChunks] = useState<readonly StreamChunk[]>([]);
  const [error, setError] = useState<Error>();
  const [isCut, setCut] = useState(false);
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    if (!isOpen) return;
    const abort = new AbortController();
    const { signal } = abort;
    collectChunks({ endpoint, job, signal, onChange: setChunks }).then(
      (cut) => {
        setCut(cut);
        setOver(true);
      },
      (reason) => {
        if (!signal.aborted) setError(asError(reason));
      },
    );
    return () => abort.abort();
  }, [endpoint, job, isOpen]);
  return (
    <section>
      <h2>Chunks</h2>
      {!isOpen && (
        <button type="button" onClick={() => setOpen(true)}>
          Show the chunks
        </button>
      )}
      {error && <Problem error={error} />}
      {isOpen && !error && chunks.length === 0 && isOver && (
        <p class="muted">The job has no chunks.</p>
      )}
      {isOpen && !error && !(chunks.length === 0 && isOver) && (
        <Chunks chunks={chunks} file={job} />
      )}
      {isCut && <p class="muted">The job has more chunks than this page reads.</p>}
    </section>
  );
}
