/**
 * Keeps a moving list still while the pointer or the focus is in it, so that a click does not hit
 * the wrong row.
 */
export class Held<T> {
  private kept = $state.raw<T>();
  private pointed = false;
  private focused = false;
  readonly value: T = $derived.by(() => this.kept ?? this.current());
  readonly still = $derived.by(() => this.kept !== undefined);

  constructor(private readonly current: () => T) {}

  /** Handlers for the element around the list. */
  readonly handlers = {
    onpointerenter: (event: PointerEvent): void =>
      this.change(event.pointerType === "mouse", this.focused),
    onpointerleave: (): void => this.change(false, this.focused),
    onfocusin: (event: FocusEvent): void =>
      this.change(
        this.pointed,
        event.target instanceof Element && event.target.matches(":focus-visible"),
      ),
    onfocusout: (): void => this.change(this.pointed, false),
  };

  private change(pointed: boolean, focused: boolean): void {
    const before = this.pointed || this.focused;
    this.pointed = pointed;
    this.focused = focused;
    const now = pointed || focused;
    if (now && !before) this.kept = this.current();
    else if (!now) this.kept = undefined;
  }
}
