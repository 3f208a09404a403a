// The drawing of a flow: its jobs in layers, with their states and edges. The drawing scrolls and zooms; the table beside it
// has the same for keyboards and screen readers.
import type { TargetedMouseEvent } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { FlowJob } from '../../../../src/client.ts';
import { PARENT_POLICIES } from '../../../../src/wire/job/job.ts';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';
import { drawnGraph, findStem, type GraphEdge, type GraphNode, groupAlike } from './graph.ts';
import { BOX, type Layout, layOut } from './layout.ts';
import { countStates, describeState, sayCounts } from './states.ts';
import { useZoom } from './zoom.ts';

const POLICIES = {
  fail: 'fails with its parent',
  run: 'runs in any case',
  skip: 'is skipped with its parent',
} as const;

/** Below this scale, texts cannot be read: the boxes are filled with their colours. */
const READABLE = 0.5;
/** Characters of a line of a box. */
const LINE = 22;

/** The jobs of one flow, whose graph never changes. */
export function Drawing({ jobs }: { jobs: readonly FlowJob[] }) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [pointed, setPointed] = useState<number>();
  const [isApart, setApart] = useState(false);
  const { groups, isGrouped } = useMemo(() => {
    const alike = groupAlike(jobs);
    const { nodes } = drawnGraph(jobs, alike, new Set());
    return { groups: alike, isGrouped: nodes.length < jobs.length };
  }, []);
  const { graph, layout } = useMemo(() => {
    const drawn = drawnGraph(jobs, isApart ? [...jobs.keys()] : groups, opened);
    return { graph: drawn, layout: layOut(drawn) };
  }, [opened, isApart]);
  const frame = useRef<HTMLElement>(null);
  const { change, fit, scale } = useZoom(frame, layout);
  useEffect(fit, [isApart]);
  const join = (isWanted: (edge: GraphEdge) => boolean) =>
    graph.edges.flatMap((edge, at) => (isWanted(edge) ? (layout.paths[at] ?? []) : [])).join('');
  // A move of the pointer and a zoom leave them as they are: there may be 1,000 boxes.
  const edges = useMemo(
    () =>
      PARENT_POLICIES.map((policy) => (
        <path key={policy} class={`edge ${policy}`} d={join((edge) => edge.policy === policy)} />
      )),
    [graph],
  );
  const boxes = useMemo(
    () =>
      graph.nodes.map((node, index) => (
        <Box
          key={node.key}
          node={node}
          jobs={node.jobs.flatMap((job) => jobs[job] ?? [])}
          at={layout.boxes[index]}
          onOpen={(key) => setOpened((before) => new Set([...before, key]))}
          onPoint={(isPointed) => setPointed(isPointed ? index : undefined)}
        />
      )),
    [graph, jobs],
  );
  const { width, height } = layout;
  return (
    <figure class="flow">
      <figcaption>
        <Legend
          policies={PARENT_POLICIES.filter((policy) =>
            graph.edges.some((edge) => edge.policy === policy),
          )}
        />
        <span class="zoom">
          {isGrouped && (
            <label class="check">
              <input
                type="checkbox"
                checked={!isApart}
                onChange={() => {
                  setApart(!isApart);
                  setOpened(new Set());
                }}
              />
              Group jobs that are alike
            </label>
          )}
          <button type="button" aria-label="Zoom out" onClick={() => change(1 / 1.25)}>
            −
          </button>
          <button type="button" aria-label="Zoom in" onClick={() => change(1.25)}>
            +
          </button>
          <button type="button" onClick={fit}>
            Fit
          </button>
        </span>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it. */}
      <section ref={frame} class="flow-frame" aria-label="Drawing" tabIndex={0}>
        <svg
          aria-hidden="true"
          class={scale < READABLE ? 'far' : undefined}
          viewBox={`0 0 ${width} ${height}`}
          width={width * scale}
          height={height * scale}
        >
          {edges}
          {pointed !== undefined && (
            <path
              class="edge pointed"
              d={join(({ from, to }) => from === pointed || to === pointed)}
            />
          )}
          {boxes}
        </svg>
      </section>
    </figure>
  );
}

function Legend({ policies }: { policies: readonly (keyof typeof POLICIES)[] }) {
  return (
    <ul class="legend">
      {policies.map((policy) => (
        <li key={policy}>
          <svg aria-hidden="true" width="28" height="8">
            <path class={`edge ${policy}`} d="M0 4H28" />
          </svg>{' '}
          {POLICIES[policy]}
        </li>
      ))}
    </ul>
  );
}

interface BoxProps {
  node: GraphNode;
  jobs: readonly FlowJob[];
  at: Layout['boxes'][number] | undefined;
  onOpen: (key: string) => void;
  onPoint: (isPointed: boolean) => void;
}

function Box({ at = { x: 0, y: 0 }, jobs, node, onOpen, onPoint }: BoxProps) {
  const [first] = jobs;
  if (!first) return null;
  const isGroup = jobs.length > 1;
  const counts = countStates(jobs);
  const { text, tone } = describeState(counts[0]?.state ?? first.state);
  const stem = isGroup ? (findStem(jobs.map(({ name }) => name)) ?? 'jobs') : first.name;
  const name = isGroup ? `${jobs.length.toLocaleString()} × ${stem}` : stem;
  const state = isGroup ? sayCounts(counts) : text;
  const props = {
    class: `box ${tone}`,
    transform: `translate(${at.x} ${at.y})`,
    onMouseEnter: () => onPoint(true),
    onMouseLeave: () => onPoint(false),
  };
  const content = (
    <>
      <title>{`${name}\n${state}${isGroup ? '' : `\n${first.endpoint}`}`}</title>
      {isGroup && <rect class="behind" x={4} y={4} width={BOX.width} height={BOX.height} rx={6} />}
      <rect width={BOX.width} height={BOX.height} rx={6} />
      {isGroup ? <CountBar counts={counts} /> : <circle cx={14} cy={30} r={4} />}
      <text class="name" x={10} y={18}>
        {shorten(name)}
      </text>
      <text class="state" x={isGroup ? 10 : 24} y={34}>
        {shorten(state)}
      </text>
    </>
  );
  if (isGroup) {
    const openGroup = (event: TargetedMouseEvent<SVGGElement>) => {
      event.stopPropagation();
      onOpen(node.key);
    };
    return (
      // biome-ignore lint/a11y/noStaticElementInteractions: the table has all jobs for keyboards.
      <g {...props} onClick={openGroup}>
        {content}
      </g>
    );
  }
  const path = `${pathOf(first.endpoint)}/jobs/${encodeURIComponent(first.id)}`;
  return (
    <a {...props} href={hrefOf(path)} tabindex={-1}>
      {content}
    </a>
  );
}

/** At the lower edge of a box: how many of its jobs have which state. */
function CountBar({ counts }: { counts: ReturnType<typeof countStates> }) {
  const total = counts.reduce((sum, { count }) => sum + count, 0);
  const width = BOX.width - 12;
  let x = 6;
  return (
    <>
      {counts.map(({ count, state }) => {
        const part = { x, width: (count / total) * width };
        x += part.width;
        const look = `part ${describeState(state).tone}`;
        return <rect key={state} class={look} {...part} y={BOX.height - 7} height={4} />;
      })}
    </>
  );
}

/** Names of one kind differ at their ends. */
function shorten(text: string): string {
  if (text.length <= LINE) return text;
  return `${text.slice(0, LINE - 9)}…${text.slice(-8)}`;
}
