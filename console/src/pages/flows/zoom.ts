// Zooms a drawing in a frame that scrolls, and moves it with the pointer.
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

/** A click may move so far, px. */
const SHAKE_PX = 4;
const LIMITS = { least: 0.05, most: 2 } as const;

interface Size {
  width: number;
  height: number;
}

interface Point {
  x: number;
  y: number;
}

export interface Zoom {
  scale: number;
  /** Around the middle of the frame. */
  change: (factor: number) => void;
  /** Shows all of the drawing. */
  fit: () => void;
}

export function useZoom(frame: RefObject<HTMLElement | null>, size: Size): Zoom {
  const [scale, setScale] = useState(1);
  const now = useRef(scale);
  now.current = scale;
  /** Where the frame is to scroll once the drawing has its new size. */
  const next = useRef<Point | undefined>(undefined);
  const zoom = (factor: number, { x, y }: Point) => {
    const element = frame.current;
    if (!element) return;
    const to = clamp(now.current * factor);
    const grown = to / now.current;
    next.current = {
      x: (element.scrollLeft + x) * grown - x,
      y: (element.scrollTop + y) * grown - y,
    };
    setScale(to);
  };
  useLayoutEffect(() => {
    if (next.current) frame.current?.scrollTo(next.current.x, next.current.y);
    next.current = undefined;
  }, [scale]);
  const change = (factor: number) => {
    const { clientHeight = 0, clientWidth = 0 } = frame.current ?? {};
    zoom(factor, { x: clientWidth / 2, y: clientHeight / 2 });
  };
  const latest = useRef({ change, zoom });
  latest.current = { change, zoom };
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    return listen(element, latest);
  }, []);
  const fit = () => {
    const element = frame.current;
    if (!element) return;
    const fitting = Math.min(
      element.clientWidth / size.width,
      // The frame grows with the drawing up to this height.
      Number.parseFloat(getComputedStyle(element).maxHeight) / size.height,
      1,
    );
    setScale(clamp(fitting));
  };
  return { scale, change, fit };
}

function clamp(scale: number): number {
  return Math.min(LIMITS.most, Math.max(LIMITS.least, scale));
}

interface Zoomer {
  change: (factor: number) => void;
  zoom: (factor: number, at: Point) => void;
}

/** The wheel with Ctrl, the keys + and -, and a drag. @returns the function that ends it */
function listen(element: HTMLElement, latest: RefObject<Zoomer>): () => void {
  const ended = new AbortController();
  const { signal } = ended;
  const onWheel = (event: WheelEvent) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const { left, top } = element.getBoundingClientRect();
    const at = { x: event.clientX - left, y: event.clientY - top };
    latest.current?.zoom(1.002 ** -event.deltaY, at);
  };
  // Not passive: the browser would zoom the whole page.
  element.addEventListener('wheel', onWheel, { signal, passive: false });
  const onKey = ({ key }: KeyboardEvent) => {
    if (key === '+') latest.current?.change(1.25);
    if (key === '-') latest.current?.change(1 / 1.25);
  };
  element.addEventListener('keydown', onKey, { signal });
  const onDown = (down: PointerEvent) => {
    // Fingers scroll by themselves.
    if (down.pointerType !== 'mouse' || down.button !== 0) return;
    const from = { x: element.scrollLeft + down.clientX, y: element.scrollTop + down.clientY };
    const dragged = new AbortController();
    const options = { signal: dragged.signal };
    let hasMoved = false;
    const onMove = ({ clientX, clientY }: PointerEvent) => {
      hasMoved ||= Math.hypot(clientX - down.clientX, clientY - down.clientY) > SHAKE_PX;
      if (hasMoved) element.scrollTo(from.x - clientX, from.y - clientY);
    };
    window.addEventListener('pointermove', onMove, options);
    window.addEventListener('pointerup', () => dragged.abort(), options);
    // It comes behind the pointer's end, and would open what lies there.
    const onClick = (event: MouseEvent) => {
      if (!hasMoved) return;
      event.preventDefault();
      event.stopPropagation();
    };
    element.addEventListener('click', onClick, { once: true, capture: true });
  };
  element.addEventListener('pointerdown', onDown, { signal });
  // A link would be dragged instead.
  element.addEventListener('dragstart', (event) => event.preventDefault(), { signal });
  return () => ended.abort();
}
