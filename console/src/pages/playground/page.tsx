// The playground: an input, one job with it, and what comes back.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { isTerminal, JOB_STATUSES } from '../../../../src/wire/job/job.ts';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { sayStatus } from '../../parts/job/job-status.ts';
import { readInput } from '../../parts/job/json-input.ts';
import { Time } from '../../parts/time.tsx';
import type { PageProps } from '../../routing/routes.ts';
import { EndpointFrame, useEndpoint } from '../endpoint/frame.tsx';
import { useAttempt } from './attempt.ts';
import type { JsonSchema } from './form/schema.ts';
import { createInput } from './form/values.ts';
import { InputEditor, useInputSchema } from './input-editor.tsx';
import { Result } from './result.tsx';
import { SnippetPanel } from './snippet-panel.tsx';
import { keepDraft, keepTry, type Mode, type PastTry, readDraft, readTries } from './tries.ts';

const FIRST_INPUT = '{\n  \n}';

export function Page({ parameters: { endpoint: id = '' } }: PageProps) {
  const { data } = useEndpoint(id);
  return (
    <EndpointFrame id={id} tab="playground" endpoint={data ?? undefined}>
      <Playground key={id} id={id} />
    </EndpointFrame>
  );
}

function Playground({ id }: { id: string }) {
  const schema = useInputSchema(id);
  const [entered, setInput] = useState(() => readDraft(id));
  const first = useMemo(() => writeFirst(schema), [schema]);
  const input = entered ?? first;
  const result = useRef<HTMLElement>(null);
  const [mode, setMode] = useState<Mode>('stream');
  const [tries, setTries] = useState(() => readTries(id));
  const { attempt, cancel, start } = useAttempt(id);
  const read = useMemo(() => readInput(input), [input]);
  const status = attempt?.record?.status;
  const isRunning = attempt !== undefined && attempt.endMs === undefined;

  useEffect(() => {
    if (!attempt?.jobId) return;
    const { input: tried, jobId, mode: by, startedAt: at } = attempt;
    setTries(keepTry(id, { jobId, input: tried, mode: by, at, status: status ?? 'IN_QUEUE' }));
  }, [id, attempt?.jobId, status]);

  const run = () => {
    if (!('value' in read)) return;
    // On a phone, the result is below the form.
    const top = result.current?.getBoundingClientRect().top ?? 0;
    if (top > window.innerHeight / 2) result.current?.scrollIntoView();
    keepDraft(id, input);
    void start({ mode, input, value: read.value });
  };
  const reopen = (tried: PastTry) => {
    setInput(tried.input);
    setMode(tried.mode);
  };
  return (
    <div class="playground">
      <form
        // The handler checks the input, and its answer says more.
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          run();
        }}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          run();
        }}
      >
        <InputEditor schema={schema} text={input} read={read} onInput={setInput} />
        <ModeChoice mode={mode} onChange={setMode} />
        <div class="form-actions">
          <button type="submit" class="primary" disabled={'problem' in read}>
            Run
          </button>
          {isRunning && attempt.jobId && !(status && isTerminal(status)) && (
            <Confirm
              label="Cancel the job"
              question="Cancel the running job?"
              isDangerous
              act={cancel}
            />
          )}
          <span class="muted">Ctrl + Enter</span>
        </div>
        <SnippetPanel endpoint={id} mode={mode} input={compact(input)} />
        <History tries={tries} onOpen={reopen} />
      </form>
      <section ref={result} aria-label="Result">
        {attempt ? (
          <Result attempt={attempt} endpoint={id} />
        ) : (
          <p class="muted">Run the job to see its output here.</p>
        )}
      </section>
    </div>
  );
}

function writeFirst(schema: JsonSchema | null | undefined): string {
  return schema ? JSON.stringify(createInput(schema), null, 2) : FIRST_INPUT;
}

/** As one line; a text that is no JSON stays as it is. */
function compact(text: string): string {
  const read = readInput(text);
  return 'value' in read ? JSON.stringify(read.value) : text;
}

const MODE_TEXTS: readonly { mode: Mode; name: string; help: string }[] = [
  { mode: 'stream', name: 'Stream', help: 'chunks as they come' },
  { mode: 'runsync', name: 'Runsync', help: 'one call that waits for the end' },
  { mode: 'run', name: 'Run', help: 'queue it, then ask for its status' },
];

function ModeChoice({ mode, onChange }: { mode: Mode; onChange: (mode: Mode) => void }) {
  return (
    <div class="choice" role="radiogroup" aria-label="How to run the job">
      {MODE_TEXTS.map((each) => (
        <label key={each.mode} title={each.help}>
          <input
            type="radio"
            name="mode"
            checked={each.mode === mode}
            onChange={() => onChange(each.mode)}
          />
          {each.name}
        </label>
      ))}
      <small class="muted">{MODE_TEXTS.find((each) => each.mode === mode)?.help}</small>
    </div>
  );
}

function History({
  onOpen,
  tries,
}: {
  tries: readonly PastTry[];
  onOpen: (tried: PastTry) => void;
}) {
  if (tries.length === 0) return null;
  return (
    <section class="history">
      <h3>Recent runs in this tab</h3>
      <ul>
        {tries.map((tried) => (
          <li key={tried.jobId}>
            <button
              type="button"
              class="quiet"
              disabled={tried.input === ''}
              onClick={() => onOpen(tried)}
            >
              <code>{tried.input.replaceAll(/\s+/g, ' ').slice(0, 60) || '(too large)'}</code>
            </button>
            <small class="muted">
              {sayTried(tried.status)}, <Time at={tried.at} />
            </small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function sayTried(status: string): string {
  const known = JOB_STATUSES.find((each) => each === status);
  return known ? sayStatus(known) : status;
}
