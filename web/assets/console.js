document.querySelector("#console").dataset.ready = "yes";
