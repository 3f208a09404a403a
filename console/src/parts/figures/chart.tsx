// A chart of values over time: uPlot, in the colours of the theme, with a legend that has the last values.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { theme } from '../../shell/theme.ts';
import { useStore } from '../store.ts';

export interface Line {
  name: string;
  /** A colour variable of base.css. */
  color: '--accent' | '--good' | '--warn' | '--bad' | '--muted';
  /** One for each time; null: no value. */
  values: readonly (number | null)[];
}

interface ChartProps {
  title: string;
  /** Unix ms, rising. */
  times: readonly number[];
  lines: readonly Line[];
  format: (value: number) => string;
  /** Bars begin at their time. Default: lines. */
  look?: 'bars' | undefined;
  /** Of the axis of time. Default: the user's. */
  zone?: 'UTC' | undefined;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const DAY = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });
const UTC_DAY = new Intl.DateTimeFormat(undefined, {
  ...{ month: 'short', day: 'numeric', timeZone: 'UTC' },
});

const MOMENT = new Intl.DateTimeFormat(undefined, {
  ...{ month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' },
});

const HEIGHT = 150;
const MS_PER_S = 1_000;
/** Approximate width of a character of an axis label, px. */
const CHARACTER_PX = 6.5;
/** Gap between the axis and its labels, px. */
const AXIS_GAP = 14;

export function Chart(props: ChartProps) {
  const { format, lines, look, times, title, zone } = props;
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const [pointed, setPointed] = useState<{ index: number; left: number }>();
  const chosen = useStore(theme);
  const names = lines.map(({ name }) => name).join('\n');
  const isEmpty = lines.every(({ values }) => values.every((value) => !value));
  const data: UPlot.AlignedData = [
    times.map((at) => at / MS_PER_S),
    ...lines.map(({ values }) => [...values]),
  ];
  const latest = useRef(data);
  latest.current = data;

  // Another theme or other lines are another plot; new values are not.
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const options = describe(element, props);
    const setCursor = ({ cursor: { idx, left = -1 } }: UPlot) =>
      setPointed(idx == null || left < 0 ? undefined : { index: idx, left });
    plot.current = new UPlot(
      { ...options, hooks: { setCursor: [setCursor] } },
      latest.current,
      element,
    );
    const resize = new ResizeObserver(() => {
      plot.current?.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    resize.observe(element);
    return () => {
      resize.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [chosen, names, look, zone, isEmpty]);

  useEffect(() => plot.current?.setData(data), [times, lines]);

  const at = pointed && times[pointed.index];
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>
        <ul class="legend">
          {(isEmpty ? [] : lines).map((line) => (
            <li key={line.name}>
              <span class={`swatch ${line.color.slice(2)}`} />
              {sayLast(line, format)}
            </li>
          ))}
        </ul>
      </figcaption>
      {isEmpty ? (
        <p class="no-data muted">No data</p>
      ) : (
        <div class="plot">
          <div ref={host} aria-hidden="true" />
          {at !== undefined && (
            <Tip left={pointed?.left ?? 0} width={host.current?.clientWidth ?? 0}>
              <strong>{(zone ? UTC_DAY : MOMENT).format(at)}</strong>
              {lines.map(({ color, name, values }) => {
                const value = values[pointed?.index ?? 0];
                return (
                  <span key={name}>
                    <span class={`swatch ${color.slice(2)}`} /> {name}{' '}
                    {value == null ? '–' : format(value)}
                  </span>
                );
              })}
            </Tip>
          )}
        </div>
      )}
    </figure>
  );
}

interface TipProps {
  /** Position of the cursor in the plot, px. */
  left: number;
  /** Width of the chart, px. */
  width: number;
  children: ComponentChildren;
}

/** Shown beside the cursor, on the side with more space. */
function Tip({ children, left, width }: TipProps) {
  return (
    <div class={`tip ${left > width / 2 ? 'left' : 'right'}`} aria-hidden="true">
      {children}
    </div>
  );
}

/** Points without a neighbour: no line shows them. */
function listLone(plot: UPlot, series: number): number[] {
  const values = plot.data[series] ?? [];
  const isThere = (index: number) => values[index] != null;
  return [...values.keys()].filter(
    (index) => isThere(index) && !isThere(index - 1) && !isThere(index + 1),
  );
}

/** In the user's words; whole days as dates, which an axis in UTC has only. */
function sayTicks(ticks: readonly number[], zone: ChartProps['zone']): string[] {
  return ticks.map((tick) => {
    const date = new Date(tick * MS_PER_S);
    if (zone) return UTC_DAY.format(date);
    const isMidnight = date.getHours() === 0 && date.getMinutes() === 0;
    return (isMidnight ? DAY : CLOCK).format(date);
  });
}

/** The chart itself cannot be read out: its last values can. */
function sayLast({ name, values }: Line, format: (value: number) => string): string {
  const last = values.findLast((value) => value !== null);
  return `${name} ${last == null ? '–' : format(last)}`;
}

/** A canvas needs the colour of the theme, not the expression for both themes. */
function readColor(element: HTMLElement, name: string): string {
  element.style.color = `var(${name})`;
  const { color } = getComputedStyle(element);
  element.style.color = '';
  return color;
}

function describe(element: HTMLElement, props: ChartProps): UPlot.Options {
  const { format, lines, look, zone } = props;
  const style = getComputedStyle(element);
  const colorOf = (name: string) => readColor(element, name);
  const axis: UPlot.Axis = {
    stroke: colorOf('--muted'),
    grid: { stroke: colorOf('--line'), width: 1 },
    ticks: { stroke: colorOf('--line'), width: 1 },
    font: `11px ${style.fontFamily}`,
  };
  const value = (_plot: UPlot, found: number | null) => (found === null ? '–' : format(found));
  return {
    width: Math.max(100, element.clientWidth),
    height: HEIGHT,
    ...(zone && { tzDate: (at: number) => UPlot.tzDate(new Date(at * MS_PER_S), 'Etc/UTC') }),
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: {
      // The last bar needs its step beside it.
      ...(look === 'bars' && { x: { range: coverLastStep } }),
      y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] },
    },
    axes: [
      { ...axis, space: 64, values: (_plot, ticks) => sayTicks(ticks, zone) },
      { ...axis, size: fitAxis, values: (_plot, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      {},
      ...lines.map(({ color, name }) => ({
        ...{ label: name, stroke: colorOf(color), width: 1.5, value },
        ...(look === 'bars' ? drawBars(colorOf(color)) : drawLine(colorOf(color))),
      })),
    ],
  };
}

/** Returns the width of an axis with these labels. */
function fitAxis(_plot: UPlot, texts: string[] | null): number {
  const longest = Math.max(0, ...(texts ?? []).map(({ length }) => length));
  return Math.ceil(longest * CHARACTER_PX) + AXIS_GAP;
}

function drawLine(fill: string): UPlot.Series {
  return { points: { show: true, size: 5, fill, filter: listLone } };
}

function coverLastStep(plot: UPlot, first: number, last: number): UPlot.Range.MinMax {
  const { length } = plot.data[0];
  return [first, length > 1 ? last + (last - first) / (length - 1) : last + 1];
}

/** From the start of a step to near its end. */
function drawBars(fill: string): UPlot.Series {
  const paths = UPlot.paths.bars?.({ align: 1, size: [0.8, 40] });
  return { fill, points: { show: false }, ...(paths && { paths }) };
}
