// Keys that work on every page: `/` moves the focus to the search field of the page, Ctrl or Cmd with K opens the palette.
import { isPaletteOpen } from './search.tsx';

export function listenForKeys(): void {
  document.addEventListener('keydown', (event) => {
    if (event.altKey) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key !== 'k') return;
      event.preventDefault();
      isPaletteOpen.write(true);
      return;
    }
    if (event.key !== '/') return;
    if (event.target instanceof Element && event.target.closest('input, textarea, select')) return;
    event.preventDefault();
    const search = document.querySelector<HTMLInputElement>('input[type=search]');
    search?.focus();
    search?.select();
    if (!search) isPaletteOpen.write(true);
  });
}
