typedef int qwp_ipc_placeholder;
