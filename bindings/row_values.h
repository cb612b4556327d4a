#pragma once

#include <cstddef>
#include <cstdint>

#include "module.h"

namespace millstream::python {

/// Writes values to the rows of one field. Needs the GIL.
class FieldRows {
 public:
  /// `rows` is a NumPy array with the rows on its first axis. Each row is contiguous.
  explicit FieldRows(nb::object rows);

  /// Writes a value to row `k`, which must exist: an array, a number, a tensor, or any
  /// other object that np.asarray takes. Returns false if `_put` in `_workers/rows.py`
  /// must write the value or raise an error. Both convert in the same way.
  bool put(std::int64_t k, PyObject* value);

  std::int64_t count() const;

 private:
  bool put_number(std::byte* to, PyObject* value) const;
  bool put_whole(std::byte* to, std::int64_t value) const;
  bool put_real(std::byte* to, double value) const;
  bool put_array(std::byte* to, nb::handle from) const;
  bool has_shape_of_row(nb::handle value) const;
  bool can_hold(nb::handle value) const;
  nb::object as_array(PyObject* value);

  nb::object rows_;
  std::int64_t bytes_;  // of a row
  int type_;            // NumPy's number of the dtype
  int rank_;            // of a row
  bool whole_;          // whether the dtype is an integer, which has the limits below
  std::int64_t low_ = 0;
  std::uint64_t high_ = 0;
  /// The type of the last value that was not an array, and how to get its memory.
  nb::object tensor_type_;
  const void* tensor_memory_ = nullptr;
};

}  // namespace millstream::python
