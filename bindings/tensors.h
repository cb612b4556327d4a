#pragma once

#include "module.h"

namespace millstream::python {

/// DLPack's C exchange API of a type of tensors, such as torch.Tensor. Null for a type
/// without it.
const void* tensor_memory(PyTypeObject* type);

/// An array over the memory of a tensor, without a copy. The caller must keep the
/// tensor alive. Returns an invalid object for a tensor that is not plain CPU memory.
nb::object tensor_array(const void* memory, PyObject* tensor);

}  // namespace millstream::python
