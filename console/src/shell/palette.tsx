// The palette: one field that leads to every page, endpoint and job, and that runs actions.
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { callOf } from '../../../src/client/api-caller.ts';
import { JOB_ROUTES } from '../../../src/wire/routes/routes.ts';
import { loadOverview, type ShownEndpoint } from '../pages/endpoint/overview-rows.ts';
import { caller } from '../platform/calls.ts';
import { usePolled } from '../platform/polling.ts';
import { may, sessionState } from '../platform/session.ts';
import { signOut } from '../platform/sign-in.ts';
import { go } from '../routing/location.ts';
import { type Finding, findAmong, isJobId } from './findings.ts';
import { PAGE_GROUPS } from './pages.ts';
import { chooseTheme, THEMES } from './theme.ts';

/** Endpoints that are asked for a job, in the order of the overview, so many at a time. */
const ASKED = { most: 200, atOnce: 8 } as const;
/** Endpoints whose jobs with a tag are offered. */
const TAGGED = 4;

export function Palette({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useId();
  const { data: endpoints = [] } = usePolled({
    ...{ key: 'palette', everyMs: null },
    load: loadOverview,
  });
  const job = useJob(text.trim(), endpoints);
  const all = [...listPages(), ...listEndpoints(endpoints), ...listActions()];
  const findings = isJobId(text)
    ? job.findings
    : [...findAmong(all, text), ...listTagged(text.trim(), endpoints)];
  useEffect(() => dialog.current?.showModal(), []);
  const run = (finding: Finding | undefined) => {
    if (!finding) return;
    onClose();
    if (typeof finding.target === 'string') go(finding.target);
    else finding.target();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined || findings.length === 0) return;
    event.preventDefault();
    setChosen((chosen + step + findings.length) % findings.length);
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog.
    <dialog
      ref={dialog}
      class="palette"
      aria-label="Search"
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          run(findings[chosen]);
        }}
      >
        <input
          type="text"
          role="combobox"
          aria-label="Page, endpoint, job ID or tag"
          placeholder="Page, endpoint, job ID or tag"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={findings.length > 0 ? `${list}-${chosen}` : undefined}
          autocomplete="off"
          spellcheck={false}
          value={text}
          onInput={({ currentTarget }) => {
            setText(currentTarget.value);
            setChosen(0);
          }}
          onKeyDown={onKey}
        />
      </form>
      <div id={list} role="listbox" aria-label="Found" tabIndex={-1}>
        {findings.map((finding, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field has the keys.
          <div
            key={`${finding.kind} ${finding.name}`}
            id={`${list}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            onMouseMove={() => setChosen(index)}
            onClick={() => run(finding)}
          >
            {finding.name} <small>{finding.kind}</small>
          </div>
        ))}
      </div>
      {findings.length === 0 && (
        <p class="muted" role="status">
          {job.isSearching ? 'Searching…' : 'Nothing found'}
        </p>
      )}
    </dialog>
  );
}

function listPages(): Finding[] {
  return PAGE_GROUPS.flatMap(({ entries }) => entries)
    .filter(({ isShown }) => isShown())
    .map(({ name, path }) => ({ name, kind: 'Page', target: path }));
}

function pathOf({ id }: ShownEndpoint): string {
  return `/endpoints/${encodeURIComponent(id)}`;
}

function listEndpoints(endpoints: readonly ShownEndpoint[]): Finding[] {
  return endpoints.flatMap((endpoint) => {
    const { id, name } = endpoint;
    const tabs = [
      { kind: 'Endpoint', tab: '' },
      ...(may('jobs:read', id)
        ? [
            { kind: 'Jobs', tab: '/jobs' },
            { kind: 'Flows', tab: '/flows' },
            { kind: 'Batches', tab: '/batches' },
          ]
        : []),
      ...(may('jobs:write', id) ? [{ kind: 'Playground', tab: '/playground' }] : []),
      ...(may('endpoints:read', id) ? [{ kind: 'Settings', tab: '/settings' }] : []),
    ];
    return tabs.map(({ kind, tab }) => ({ name, kind, target: pathOf(endpoint) + tab }));
  });
}

function listActions(): Finding[] {
  const state = sessionState.read();
  const hasKey = state.kind === 'open' && state.session.key !== null;
  return [
    ...THEMES.map((name) => ({
      ...{ name: `Theme: ${name}`, kind: 'Action' },
      target: () => chooseTheme(name),
    })),
    ...(hasKey ? [{ name: 'Sign out', kind: 'Action', target: () => void signOut() }] : []),
  ];
}

function listTagged(tag: string, endpoints: readonly ShownEndpoint[]): Finding[] {
  if (tag === '') return [];
  return endpoints
    .filter(({ id }) => may('jobs:read', id))
    .slice(0, TAGGED)
    .map((endpoint) => ({
      ...{ name: `Jobs of ${endpoint.name} with the tag “${tag}”`, kind: 'Tag' },
      target: `${pathOf(endpoint)}/jobs?tag=${encodeURIComponent(tag)}`,
    }));
}

/** Asks the endpoints for a job, until one has it. */
function useJob(id: string, endpoints: readonly ShownEndpoint[]) {
  const isWanted = isJobId(id);
  const { data } = usePolled({
    key: `job ${isWanted ? id : ''} ${endpoints.length}`,
    load: async (signal) => (isWanted ? await findJob(id, endpoints, signal) : []),
    everyMs: null,
  });
  return { findings: data ?? [], isSearching: isWanted && data === undefined };
}

async function findJob(
  id: string,
  endpoints: readonly ShownEndpoint[],
  signal: AbortSignal,
): Promise<Finding[]> {
  const asked = endpoints.filter((each) => may('jobs:read', each.id)).slice(0, ASKED.most);
  for (let start = 0; start < asked.length; start += ASKED.atOnce) {
    const some = asked.slice(start, start + ASKED.atOnce);
    const answers = await Promise.all(some.map((each) => hasJob(each.id, id, signal)));
    const endpoint = some[answers.indexOf(true)];
    if (!endpoint) continue;
    const target = `${pathOf(endpoint)}/jobs/${encodeURIComponent(id)}`;
    return [{ name: id, kind: `Job of ${endpoint.name}`, target }];
  }
  return [];
}

async function hasJob(endpoint: string, job: string, signal: AbortSignal): Promise<boolean> {
  const call = callOf(JOB_ROUTES.getJob, { endpoint, job });
  // Not found, or no longer allowed: then another endpoint may have it.
  const answer = caller.answer({ ...call, query: { input: 'false' }, signal });
  return answer.then(
    () => true,
    () => false,
  );
}
