#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "loader.h"
#include "millstream/core/error.h"
#include "millstream/loader/batch.h"
#include "module.h"
#include "row_values.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

using namespace nanobind::literals;

namespace millstream::python {
namespace {

PyArrayObject* array(nb::handle object) {
  return reinterpret_cast<PyArrayObject*>(object.ptr());
}

nb::object number(std::int64_t value) {
  nb::object made = nb::steal(PyLong_FromLongLong(value));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

/// A node in the tree of a sample: a leaf, a container or None. The tree consists of
/// dicts, tuples and lists; its leaves are field numbers.
struct Place {
  enum class Kind : std::uint8_t { kLeaf, kMapping, kSequence, kNone, kOther };
  Kind kind = Kind::kOther;
  std::size_t leaf = 0;
  std::vector<nb::object> keys;
  std::vector<Place> inner;
};

Place placed(nb::handle tree, std::size_t leaves) {
  Place place;
  if (PyLong_CheckExact(tree.ptr())) {
    place.leaf = nb::cast<std::size_t>(tree);
    place.kind = place.leaf < leaves ? Place::Kind::kLeaf : Place::Kind::kOther;
  } else if (PyDict_CheckExact(tree.ptr())) {
    place.kind = Place::Kind::kMapping;
    for (const auto& [key, value] : nb::borrow<nb::dict>(tree)) {
      place.keys.push_back(nb::borrow(key));
      place.inner.push_back(placed(value, leaves));
    }
  } else if (PyTuple_Check(tree.ptr()) || PyList_Check(tree.ptr())) {
    place.kind = Place::Kind::kSequence;
    for (const nb::handle value : tree) place.inner.push_back(placed(value, leaves));
  } else if (tree.is_none()) {
    place.kind = Place::Kind::kNone;
  }
  return place;
}

/// The rows of all fields of a batch.
class SampleRows {
 public:
  void add(nb::object rows) { rows_.emplace_back(std::move(rows)); }

  std::size_t fields() const { return rows_.size(); }

  bool has_row(std::int64_t k) const {
    return k >= 0 && std::ranges::all_of(rows_, [k](const FieldRows& rows) {
             return k < rows.count();
           });
  }

  /// Returns false if `slowly` must write the sample. It then overwrites the leaves
  /// written so far. Each value is kept alive during its copy, because another thread
  /// may change the sample.
  bool write(const Place& place, std::int64_t k, PyObject* value) {
    const auto size = static_cast<Py_ssize_t>(place.inner.size());
    switch (place.kind) {
      case Place::Kind::kLeaf: return rows_[place.leaf].put(k, value);
      case Place::Kind::kMapping:
        if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) != size) return false;
        for (std::size_t i = 0; i < place.inner.size(); ++i) {
          const nb::object found =
              nb::borrow(PyDict_GetItemWithError(value, place.keys[i].ptr()));
          if (!found.is_valid() && PyErr_Occurred()) throw nb::python_error();
          if (!found.is_valid() || !write(place.inner[i], k, found.ptr())) return false;
        }
        return true;
      case Place::Kind::kSequence:
        if (!PyTuple_Check(value) && !PyList_CheckExact(value)) return false;
        for (Py_ssize_t i = 0; i < size && PySequence_Fast_GET_SIZE(value) == size;
             ++i) {
          const nb::object found = nb::borrow(PySequence_Fast_GET_ITEM(value, i));
          if (!write(place.inner[static_cast<std::size_t>(i)], k, found.ptr())) {
            return false;
          }
        }
        return PySequence_Fast_GET_SIZE(value) == size;
      case Place::Kind::kNone: return value == Py_None;
      case Place::Kind::kOther: return false;
    }
    return false;
  }

 private:
  std::vector<FieldRows> rows_;
};

template <typename Call>
nb::object called(const Call& call) {
  nb::object result = nb::steal(in_python(call));
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

/// Writes samples to rows. A sample that `FieldRows` cannot write, or that has another
/// structure, goes to the function `slowly`, which raises errors.
class RowWriter {
 public:
  RowWriter(const std::vector<nb::object>& rows, nb::handle tree, nb::object slowly)
      : slowly_(std::move(slowly)) {
    if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
    for (const nb::object& each : rows) rows_.add(each);
    place_ = placed(tree, rows_.fields());
  }

  void put(std::int64_t k, nb::handle sample) {
    if (!rows_.has_row(k)) throw nb::index_error("row index out of range");
    if (rows_.write(place_, k, sample.ptr())) return;
    const nb::object place = number(k);
    PyObject* arguments[] = {place.ptr(), sample.ptr()};
    called([&] { return PyObject_Vectorcall(slowly_.ptr(), arguments, 2, nullptr); });
  }

  /// Writes `function(index)` of each index to its row, and stores in `row` which row
  /// it is making.
  void put_all(nb::handle function, nb::handle indices, nb::handle row) {
    if (!is_int64(indices) || !is_int64(row) || PyArray_SIZE(array(row)) < 1) {
      throw nb::value_error("indices and row must be contiguous int64 arrays");
    }
    const auto* numbers =
        static_cast<const std::int64_t*>(PyArray_DATA(array(indices)));
    const std::atomic_ref<std::int64_t> at(
        *static_cast<std::int64_t*>(PyArray_DATA(array(row))));
    for (std::int64_t k = 0; k < PyArray_SIZE(array(indices)); ++k) {
      at.store(k, std::memory_order_relaxed);
      const nb::object index = number(numbers[k]);
      put(k, called([&] { return PyObject_CallOneArg(function.ptr(), index.ptr()); }));
    }
  }

 private:
  static bool is_int64(nb::handle vector) {
    return PyArray_Check(vector.ptr()) && PyArray_TYPE(array(vector)) == NPY_INT64 &&
           PyArray_ISCARRAY_RO(array(vector));
  }

  SampleRows rows_;
  Place place_;
  nb::object slowly_;
};

/// Copies lists of samples into slots.
class RowBatches {
 public:
  RowBatches(const std::vector<FieldSpec>& fields, nb::handle tree, std::int64_t rows,
             std::size_t kept, nb::object slowly)
      : slots_(std::make_shared<Slots>(Layout(schema(fields), rows), kept)),
        place_(placed(tree, fields.size())),
        slowly_(std::move(slowly)) {
    if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
  }

  nb::list batch(const nb::list& samples) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    const std::int64_t rows = slots_->layout().rows();
    if (count > rows) {
      throw nb::value_error(text("expected at most ", rows, " samples").c_str());
    }
    std::shared_ptr<Batch> made = slots_->take();
    for (const Column& column : made->columns()) {
      std::memset(column.data + count * column.stride, 0,
                  static_cast<std::size_t>((rows - count) * column.stride));
    }
    std::fill_n(made->mask(), count, true);
    std::fill_n(made->mask() + count, rows - count, false);
    nb::list arrays = batch_arrays(std::move(made), slots_->layout());
    SampleRows fields;
    for (std::size_t i = 0; i + 1 < arrays.size(); ++i) fields.add(arrays[i]);
    for (std::int64_t k = 0; k < count; ++k) {
      const nb::object sample = samples[static_cast<std::size_t>(k)];
      if (fields.write(place_, k, sample.ptr())) continue;
      const nb::object row = number(k);
      PyObject* arguments[] = {arrays.ptr(), row.ptr(), sample.ptr()};
      called([&] { return PyObject_Vectorcall(slowly_.ptr(), arguments, 3, nullptr); });
    }
    return arrays;
  }

  std::int64_t bytes() const { return slots_->layout().bytes(); }

 private:
  std::shared_ptr<Slots> slots_;
  Place place_;
  nb::object slowly_;
};

}  // namespace

void bind_rows(nb::module_& module) {
  nb::class_<RowWriter>(module, "RowWriter", R"(
Writes samples to the rows of arrays.

Args:
  rows: One array per field, with the rows on the first axis.
  tree: The structure of a sample, with field numbers as leaves.
  slowly: Called with (k, sample) for a sample that this class cannot write.)")
      .def(nb::init<const std::vector<nb::object>&, nb::handle, nb::object>(), "rows"_a,
           "tree"_a.none(), "slowly"_a)
      .def("put", &RowWriter::put, "k"_a, "sample"_a.none(),
           "Writes a sample to row k.")
      .def("put_all", &RowWriter::put_all, "function"_a, "indices"_a, "row"_a,
           "Writes function(index) of each index to its row. Stores the current row in "
           "row[0].");

  nb::class_<RowBatches>(module, "RowBatches", R"(
Copies lists of samples into memory that JAX can alias.

Args:
  fields: (name, dtype, shape) of each field of a sample.
  tree: The structure of a sample, with field numbers as leaves.
  rows: The number of rows of a batch.
  kept: How many unused blocks of memory to keep.
  slowly: Called with (arrays, k, sample) for a sample that this class cannot write.)")
      .def(nb::init<const std::vector<FieldSpec>&, nb::handle, std::int64_t,
                    std::size_t, nb::object>(),
           "fields"_a, "tree"_a.none(), "rows"_a, "kept"_a, "slowly"_a)
      .def("batch", &RowBatches::batch, "samples"_a,
           "Returns one array per field with the samples as rows, and the mask. The "
           "remaining rows are zero and their mask is False.")
      .def_prop_ro("bytes", &RowBatches::bytes, "The size of a batch.");
}

}  // namespace millstream::python
