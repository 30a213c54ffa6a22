"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = (use) => { try { return use(localStorage); } catch { return null; } }; // a file may have no storage
  const show = (theme) => {
    if (theme) root.dataset.theme = theme;
    const dark = (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
    button.textContent = dark ? "Light theme" : "Dark theme";
    return dark;
  };
  button.addEventListener("click", () => {
    const theme = show() ? "light" : "dark";
    show(theme);
    stored((storage) => storage.setItem("theme", theme));
  });
  system.addEventListener("change", () => show());
  show(stored((storage) => storage.getItem("theme")));
  button.hidden = false;
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
})();
