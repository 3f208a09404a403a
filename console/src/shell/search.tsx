// The button that opens the palette. Its code is loaded when it is opened for the first time.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { createStore, useStore } from '../parts/store.ts';

export const isPaletteOpen = createStore(false);

const MODIFIER = /Mac|iPhone|iPad/.test(navigator.userAgent) ? '⌘' : 'Ctrl';

export function SearchButton() {
  const isOpen = useStore(isPaletteOpen);
  const [loaded, setLoaded] = useState<{ Palette: ComponentType<{ onClose: () => void }> }>();
  useEffect(() => {
    if (isOpen && !loaded) void import('./palette.tsx').then(setLoaded);
  }, [isOpen, loaded]);
  return (
    <>
      <button
        type="button"
        class="search-button"
        aria-keyshortcuts="Control+K Meta+K"
        onClick={() => isPaletteOpen.write(true)}
      >
        Search <kbd>{MODIFIER} K</kbd>
      </button>
      {isOpen && loaded && <loaded.Palette onClose={() => isPaletteOpen.write(false)} />}
    </>
  );
}
