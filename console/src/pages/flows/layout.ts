// Places the boxes of a graph: layers from left to right, few crossings, edges as straight as the boxes allow. A pure
// function of the graph.
import { findLayers, type Graph, type GraphEdge } from './graph.ts';

export const BOX = { width: 176, height: 44 } as const;

const GAP = { layer: 64, column: 16, box: 12 } as const;
/** Height of an edge that passes a layer. */
const LANE = 10;
const MARGIN = 12;
/** A layer with more boxes gets several columns. */
const MAX_ROWS = 30;
/** More passing edges would be a grey area. */
const MAX_LANES = 600;
const SWEEPS = 8;

export interface Layout {
  width: number;
  height: number;
  /** Upper left corners, in the order of the nodes. */
  boxes: readonly { x: number; y: number }[];
  /** In the order of the edges, as data of an SVG path. */
  paths: readonly string[];
}

/** A box, or the place where an edge passes a layer. */
interface Item {
  layer: number;
  /** Undefined for an edge that passes. */
  node: number | undefined;
  x: number;
  y: number;
  before: Item[];
  after: Item[];
}

export function layOut(graph: Graph): Layout {
  const parents = graph.nodes.map((): { job: number }[] => []);
  for (const { from, to } of graph.edges) parents[to]?.push({ job: from });
  const boxes = findLayers(parents).map(
    (layer, node): Item => ({ layer, node, x: 0, y: 0, before: [], after: [] }),
  );
  const chains = joinItems(graph.edges, boxes);
  const layers = listLayers([...boxes, ...chains.flat()]);
  for (let sweep = 0; sweep < SWEEPS; sweep++) sortLayers(layers, sweep % 2 === 0);
  let x = MARGIN;
  for (const layer of layers) x = stack(layer, x) + GAP.layer;
  // The last sweep goes forward: each box is beside its parents.
  for (let sweep = 0; sweep <= SWEEPS; sweep++) straighten(layers, sweep % 2 === 0);
  const top = Math.min(...layers.flat().map(({ y }) => y));
  for (const item of layers.flat()) item.y += MARGIN - top;
  return {
    width: Math.max(...boxes.map((box) => box.x + BOX.width)) + MARGIN,
    height: Math.max(...layers.flat().map((item) => item.y + heightOf(item))) + MARGIN,
    boxes: boxes.map(({ x, y }) => ({ x, y })),
    paths: chains.map(drawPath),
  };
}

/** Returns the items of each edge from its parent to its child, and makes them neighbours. */
function joinItems(edges: readonly GraphEdge[], boxes: readonly Item[]): Item[][] {
  const spans = edges.map(({ from, to }) => (boxes[to]?.layer ?? 0) - (boxes[from]?.layer ?? 0));
  const lanes = spans.reduce((sum, span) => sum + span - 1, 0);
  const sizes = Map.groupBy(boxes, ({ layer }) => layer);
  const isCrowded = lanes > MAX_LANES || [...sizes.values()].some((all) => all.length > MAX_ROWS);
  return edges.map(({ from, to }) => {
    const [start, end] = [boxes[from], boxes[to]];
    if (!start || !end) return [];
    const chain = [start];
    for (let layer = start.layer + 1; layer < end.layer && !isCrowded; layer++) {
      chain.push({ layer, node: undefined, x: 0, y: 0, before: [], after: [] });
    }
    chain.push(end);
    for (const [at, item] of chain.entries()) {
      const next = chain[at + 1];
      if (!next) continue;
      item.after.push(next);
      next.before.push(item);
    }
    return chain;
  });
}

function listLayers(items: readonly Item[]): Item[][] {
  const layers: Item[][] = [];
  for (const item of new Set(items)) {
    const layer = layers[item.layer] ?? [];
    layers[item.layer] = layer;
    layer.push(item);
  }
  return layers;
}

/** Moves each item to the middle of its neighbours in the layers before, or behind. */
function sortLayers(layers: readonly Item[][], isForward: boolean): void {
  // Until the boxes have their places, `y` is the place in the layer.
  const number = (layer: readonly Item[]) => {
    for (const [at, item] of layer.entries()) item.y = (at + 0.5) / layer.length;
  };
  for (const layer of layers) number(layer);
  for (const layer of isForward ? layers : layers.toReversed()) {
    const wanted = new Map(layer.map((item) => [item, findMiddle(item, isForward)]));
    layer.sort((a, b) => (wanted.get(a) ?? a.y) - (wanted.get(b) ?? b.y));
    number(layer);
  }
}

function findMiddle({ after, before }: Item, isForward: boolean): number | undefined {
  const near = isForward ? before : after;
  if (near.length === 0) return undefined;
  return near.reduce((sum, item) => sum + item.y + heightOf(item) / 2, 0) / near.length;
}

function heightOf({ node }: Item): number {
  return node === undefined ? LANE : BOX.height;
}

/** Stacks the items of a layer around the middle line. @returns where the layer ends */
function stack(layer: readonly Item[], x: number): number {
  const columns = Math.ceil(layer.length / MAX_ROWS);
  const rows = Math.ceil(layer.length / columns);
  const ofColumn = (column: number) => layer.slice(column * rows, (column + 1) * rows);
  for (let column = 0; column < columns; column++) {
    const items = ofColumn(column);
    const height = items.reduce((sum, item) => sum + heightOf(item) + GAP.box, -GAP.box);
    let y = -height / 2;
    for (const item of items) {
      item.x = x + column * (BOX.width + GAP.column);
      item.y = y;
      y += heightOf(item) + GAP.box;
    }
  }
  return x + columns * (BOX.width + GAP.column) - GAP.column;
}

/** Moves the items of each layer towards their neighbours, in their order and without overlap. */
function straighten(layers: readonly Item[][], isForward: boolean): void {
  for (const layer of isForward ? layers : layers.toReversed()) {
    // Columns of a wide layer stay aligned.
    if (layer.length > MAX_ROWS) continue;
    const wanted = layer.map((item) => {
      const middle = findMiddle(item, isForward);
      return middle === undefined ? item.y : middle - heightOf(item) / 2;
    });
    let least = Number.NEGATIVE_INFINITY;
    for (const [at, item] of layer.entries()) {
      item.y = Math.max(least, wanted[at] ?? 0);
      least = item.y + heightOf(item) + GAP.box;
    }
    const drift = layer.reduce((sum, { y }, at) => sum + y - (wanted[at] ?? 0), 0) / layer.length;
    for (const item of layer) item.y -= drift;
  }
}

function drawPath(chain: readonly Item[]): string {
  const [start, ...rest] = chain;
  if (!start) return '';
  let [x, y] = [start.x + BOX.width, start.y + BOX.height / 2];
  let path = `M${round(x)} ${round(y)}`;
  for (const item of rest) {
    const [toX, toY] = [item.x, item.y + heightOf(item) / 2];
    const middle = round((x + toX) / 2);
    path += `C${middle} ${round(y)} ${middle} ${round(toY)} ${round(toX)} ${round(toY)}`;
    if (item.node === undefined) path += `h${BOX.width}`;
    [x, y] = [item.node === undefined ? toX + BOX.width : toX, toY];
  }
  return path;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
