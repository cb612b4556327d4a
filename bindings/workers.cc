#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "loader.h"
#include "millstream/core/error.h"
#include "millstream/core/random.h"
#include "millstream/core/worker_pool.h"
#include "millstream/loader/executor.h"
#include "millstream/source/function.h"
#include "millstream/transform/function.h"
#include "millstream/transform/transform.h"
#include "millstream/workers/current_row.h"
#include "millstream/workers/process_worker_pool.h"
#include "millstream/workers/thread_worker_pool.h"
#include "millstream/workers/worker.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

constexpr std::uint32_t number_of(StageKind kind) {
  return static_cast<std::uint32_t>(kind);
}

nb::list views(std::span<const Column> columns, std::int64_t rows, nb::handle owner) {
  nb::list result;
  for (const Column& column : columns) {
    result.append(rows_array(column.dtype, column.shape, column.data, rows,
                             column.stride, owner));
  }
  return result;
}

nb::capsule capsule_of(const std::shared_ptr<const void>& owner) {
  using Pointer = std::shared_ptr<const void>;
  return nb::capsule(new Pointer(owner), [](void* pointer) noexcept {
    delete static_cast<Pointer*>(pointer);
  });
}

std::string as_string(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::string as_text(nb::handle object) {
  const nb::object words = nb::steal(PyObject_Str(object.ptr()));
  // A path in the message may contain surrogates, which UTF-8 cannot encode.
  const nb::object bytes =
      nb::steal(words.is_valid() ? PyUnicode_AsEncodedString(words.ptr(), "utf-8",
                                                             "backslashreplace")
                                 : nullptr);
  if (bytes.is_valid()) return as_string(nb::borrow<nb::bytes>(bytes));
  PyErr_Clear();
  return "an exception whose str() failed";
}

/// Whether another try may succeed.
bool transient(const nb::python_error& error) {
  if (error.matches(
          nb::module_::import_("millstream._core.errors").attr("WorkerError"))) {
    return true;
  }
  int code = 0;
  const bool known =
      error.matches(PyExc_OSError) &&
      nb::try_cast<int>(nb::getattr(error.value(), "errno", nb::none()), code);
  return known && code == EIO;
}

/// Converts the exception of a user's function for the engine.
FunctionError failure(nb::python_error& error, const WorkRequest& chunk,
                      std::int64_t row) {
  PyException_SetTraceback(error.value().ptr(), error.traceback().ptr() != nullptr
                                                    ? error.traceback().ptr()
                                                    : Py_None);
  const std::int64_t last = chunk.rows() - 1;
  const std::int64_t sample =
      chunk.indices[static_cast<std::size_t>(std::clamp<std::int64_t>(row, 0, last))];
  const std::string type = nb::cast<std::string>(error.type().attr("__name__"));
  return FunctionError(text(type, ": ", as_text(error.value()), " (",
                            current_samples(row, chunk.indices), ")"),
                       sample, "", shared_object(error.value()), transient(error));
}

/// The host value of each row, or None; an empty list if there are none.
nb::list host_value_list(const WorkRequest& chunk) {
  nb::list result;
  if (chunk.host_values.empty()) return result;
  for (std::int64_t k = 0; k < chunk.rows(); ++k) result.append(nb::none());
  for (const HostValue& value : chunk.host_values) {
    result[static_cast<std::size_t>(value.row - chunk.first)] = python_value(value);
  }
  return result;
}

/// Adds the host values that a task returned for the rows of a chunk.
void add_host_values(const WorkRequest& chunk, nb::handle values) {
  std::vector<HostValue> added;
  for (const nb::handle value : nb::cast<nb::list>(values)) {
    const auto row = chunk.first + static_cast<std::int64_t>(added.size());
    added.push_back({row, shared_object(value), ""});
  }
  chunk.context.host_values->add(std::move(added));
}

/// Pickles the host values that are objects of this process.
void pickle_host_values(const WorkRequest& request) {
  const auto gil = in_python([] { return std::make_unique<nb::gil_scoped_acquire>(); });
  std::int64_t row = 0;
  try {
    const nb::object pickled =
        nb::module_::import_("millstream._workers.pools").attr("pickled_host_value");
    for (HostValue& value : request.host_values) {
      if (value.object == nullptr) continue;
      row = value.row - request.first;
      const nb::handle object(
          const_cast<PyObject*>(static_cast<const PyObject*>(value.object.get())));
      const nb::object bytes = in_python([&] {
        return pickled(object, request.indices[static_cast<std::size_t>(row)]);
      });
      value.bytes = as_string(nb::cast<nb::bytes>(bytes));
      value.object.reset();
    }
  } catch (nb::python_error& error) {
    throw failure(error, request, row);
  }
}

void call(const std::shared_ptr<const void>& function, const WorkRequest& chunk,
          std::atomic<std::int64_t>& row, const std::shared_ptr<const void>& memory) {
  const auto gil = in_python([] { return std::make_unique<nb::gil_scoped_acquire>(); });
  const nb::handle callable(
      const_cast<PyObject*>(static_cast<const PyObject*>(function.get())));
  try {
    const nb::capsule owner = capsule_of(memory);
    const nb::object seeds =
        chunk.seeds.empty() ? nb::none()
                            : numbers_array(chunk.seeds.data(), chunk.seeds.size());
    const nb::tuple arguments =
        nb::make_tuple(numbers_array(chunk.indices.data(), chunk.indices.size()), seeds,
                       views(chunk.input, chunk.rows(), owner),
                       views(chunk.output, chunk.rows(), owner),
                       cell_array(reinterpret_cast<std::int64_t*>(&row), owner),
                       host_value_list(chunk));
    const nb::object values = nb::steal(in_python(
        [&] { return PyObject_Call(callable.ptr(), arguments.ptr(), nullptr); }));
    if (!values.is_valid()) throw nb::python_error();
    if (chunk.context.host_values != nullptr && !values.is_none()) {
      add_host_values(chunk, values);
    }
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) {
      // Ctrl-C during a call by the main thread. `take_batch` raises it again.
      PyErr_SetInterrupt();
      throw Cancelled("interrupted");
    }
    throw failure(error, chunk, row.load());
  }
}

struct WorkerPoolHandle {
  std::shared_ptr<WorkerPool> shared;
  ~WorkerPoolHandle() {
    const GilRelease released;  // a function may need the GIL to end
    shared.reset();
  }
};

std::unique_ptr<WorkerPoolHandle> thread_worker_pool(nb::callable function, int workers,
                                                     std::int64_t timeout, bool whole) {
  ThreadWorkerPool::Function calls;
  calls.make = [held = shared_object(function)](
                   const WorkRequest& chunk, std::atomic<std::int64_t>& row,
                   const std::shared_ptr<const void>& owner) {
    call(held, chunk, row, owner);
  };
  calls.stack_of = [](std::uint64_t thread) {
    const auto gil =
        in_python([] { return std::make_unique<nb::gil_scoped_acquire>(); });
    try {
      const auto tasks = nb::module_::import_("millstream._workers.tasks");
      return as_text(tasks.attr("stack_of")(thread));
    } catch (const std::exception&) {
      return std::string();
    }
  };
  return std::unique_ptr<WorkerPoolHandle>(
      new WorkerPoolHandle{std::make_shared<ThreadWorkerPool>(
          std::move(calls), workers, std::chrono::milliseconds(timeout), whole)});
}

std::unique_ptr<WorkerPoolHandle> process_worker_pool(
    const std::vector<nb::bytes>& command, const std::vector<nb::bytes>& environment,
    const nb::bytes& setup, int workers, std::int64_t timeout, int restarts,
    bool whole) {
  Launch launch{{}, {}, as_string(setup)};
  for (const nb::bytes& word : command) launch.command.push_back(as_string(word));
  for (const nb::bytes& word : environment) {
    launch.environment.push_back(as_string(word));
  }
  const ProcessWorkerPool::Options options{workers, std::chrono::milliseconds(timeout),
                                           restarts, pickle_host_values, whole};
  return std::unique_ptr<WorkerPoolHandle>(new WorkerPoolHandle{
      std::make_shared<ProcessWorkerPool>(std::move(launch), options)});
}

std::vector<std::int64_t> pids(const WorkerPoolHandle& handle) {
  const auto* pool = dynamic_cast<const ProcessWorkerPool*>(handle.shared.get());
  return pool == nullptr ? std::vector<std::int64_t>{} : pool->pids();
}

struct ExecutorHandle {
  std::shared_ptr<Executor> running;
  ~ExecutorHandle() {
    const GilRelease released;
    running.reset();
  }
};

std::unique_ptr<ExecutorHandle> executor(const WorkerPoolHandle& worker_pool,
                                         const std::vector<FieldSpec>& fields,
                                         std::int64_t rows, int concurrency) {
  return std::unique_ptr<ExecutorHandle>(new ExecutorHandle{std::make_shared<Executor>(
      worker_pool.shared, schema(fields), rows, concurrency)});
}

using PendingBatchHandle = Handle<PendingBatch>;

PendingBatchHandle submit(
    ExecutorHandle& handle,
    const nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>&
        indices,
    const std::optional<nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig,
                                    nb::device::cpu>>& seeds) {
  std::vector<std::uint64_t> numbers;
  if (seeds) numbers.assign(seeds->data(), seeds->data() + seeds->size());
  return {handle.running->submit({indices.data(), indices.data() + indices.size()},
                                 std::move(numbers))};
}

/// (fields and mask, host values), or None after the timeout.
nb::object wait(const PendingBatchHandle& pending, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration<double>(std::min(seconds, 1e8));
  while (true) {
    std::shared_ptr<const Batch> batch;
    {
      const GilRelease released;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      batch = pending.shared->wait(std::clamp(left, std::chrono::milliseconds(0),
                                              std::chrono::milliseconds(50)));
    }
    if (batch != nullptr) {
      nb::list values = host_values_of(*batch);
      return nb::make_tuple(batch_arrays(std::move(batch), pending.shared->layout()),
                            values);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (std::chrono::steady_clock::now() >= deadline) return nb::none();
  }
}

/// A worker and the fields of its tasks.
struct WorkerHandle {
  explicit WorkerHandle(std::int64_t parent) : worker(parent) {}

  Worker worker;
  Schema inputs;
  Schema outputs;
};

void ready(WorkerHandle& handle, const std::vector<FieldSpec>& inputs,
           const std::vector<FieldSpec>& outputs) {
  handle.inputs = schema(inputs);
  handle.outputs = schema(outputs);
  handle.worker.ready();
}

/// Returns (indices, seeds, inputs, outputs, host values) of the next task, or None if
/// there are no more. Inputs and outputs are in shared memory, which is valid only
/// during this task.
nb::object next_task(nb::handle self) {
  auto& handle = nb::cast<WorkerHandle&>(self);
  Worker& worker = handle.worker;
  bool more;
  {
    const GilRelease released;
    more = worker.next();
  }
  if (!more) return nb::none();
  const Task& task = worker.task();
  const auto rows = static_cast<std::int64_t>(task.indices.size());
  const auto listed = [&](const std::vector<Task::Rows>& columns,
                          const Schema& fields) {
    nb::list result;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Field& field = fields.at(i);
      result.append(rows_array(field.dtype, field.shape, worker.data(columns[i]), rows,
                               columns[i].stride, self));
    }
    return result;
  };
  const nb::object seeds = task.seeds.empty()
                               ? nb::none()
                               : numbers_array(task.seeds.data(), task.seeds.size());
  nb::list host_values;
  for (const std::string& value : task.host_values) {
    host_values.append(
        value.empty() ? nb::none() : nb::object(nb::bytes(value.data(), value.size())));
  }
  return nb::make_tuple(numbers_array(task.indices.data(), task.indices.size()), seeds,
                        listed(task.input, handle.inputs),
                        listed(task.output, handle.outputs), host_values);
}

}  // namespace

void bind_workers(nb::module_& module) {
  nb::class_<WorkerPoolHandle>(module, "WorkerPool",
                               "Threads or processes that make samples.")
      .def_prop_ro("workers",
                   [](const WorkerPoolHandle& m) { return m.shared->workers(); })
      .def_prop_ro("pids", pids, "The pids of the running worker processes.")
      .def(
          "close", [](WorkerPoolHandle& m) { m.shared->close(); },
          nb::call_guard<GilRelease>(), "Ends the threads or processes.");

  module.def("thread_worker_pool", thread_worker_pool, "function"_a, "workers"_a,
             "timeout"_a, "whole"_a = false, R"(
Creates threads that make chunks of batches with a Python function.

Args:
  function: Called with (indices, seeds, inputs, outputs, row, host values). Returns the
    host values, one per row, or None.
  workers: The number of threads.
  timeout: The time limit for one row in milliseconds; 0 for no limit.
  whole: Whether one call makes all rows of a batch.)");
  module.def("process_worker_pool", process_worker_pool, "command"_a, "environment"_a,
             "setup"_a, "workers"_a, "timeout"_a, "restarts"_a, "whole"_a = false, R"(
Creates processes that make chunks of batches in shared memory.

Args:
  command: The command of a worker process, which must use `Worker`.
  environment: The environment of the process, "NAME=value".
  setup: The first message to each process.
  workers: The number of processes.
  timeout: The time limit for one row in milliseconds; 0 for no limit.
  restarts: How many processes may be replaced. Their rows are retried.
  whole: Whether one process makes all rows of a batch.)");
  module.def(
      "function_source",
      [](std::int64_t size, const std::vector<FieldSpec>& fields,
         const WorkerPoolHandle& worker_pool, std::optional<std::uint32_t> stage) {
        const bool is_function = stage == number_of(StageKind::kFunction);
        return Handle<Source>{std::make_shared<FunctionSource>(
            size, schema(fields), worker_pool.shared, stage, is_function ? 1 : 0)};
      },
      "size"_a, "fields"_a, "worker_pool"_a, "stage"_a.none() = nb::none(), R"(
Samples that a worker pool makes from their indices.

Args:
  size: The number of samples.
  fields: (name, dtype, shape) of each field.
  worker_pool: The workers.
  stage: `FUNCTION_STAGE` or `SOURCE_STAGE` if each sample needs a seed, or None.)");
  module.def(
      "sample_seed",
      [](std::uint32_t stage, std::int64_t sample) {
        return Random({}, 0, sample, stage).bits64();
      },
      "stage"_a, "sample"_a,
      "Returns the seed of a sample of a function for seed 0 and epoch 0.");
  module.attr("FUNCTION_STAGE") = number_of(StageKind::kFunction);
  module.attr("SOURCE_STAGE") = number_of(StageKind::kSource);
  module.def(
      "function_transform",
      [](const std::string& name, const std::vector<FieldSpec>& inputs,
         const std::vector<FieldSpec>& fields, const WorkerPoolHandle& worker_pool,
         bool draws) {
        return Handle<Transform>{std::make_shared<FunctionTransform>(
            name, schema(inputs), schema(fields), worker_pool.shared, draws)};
      },
      "name"_a, "inputs"_a, "fields"_a, "worker_pool"_a, "draws"_a = true,
      "A transform by a worker pool. If it draws, each sample comes with a seed.");

  nb::class_<PendingBatchHandle>(module, "PendingBatch",
                                 "A batch that was submitted to an `Executor`.")
      .def_prop_ro("done", [](const PendingBatchHandle& t) { return t.shared->done(); })
      .def("wait", wait, "seconds"_a,
           "Returns (fields and mask, host values), or None after the timeout.");
  nb::class_<ExecutorHandle>(module, "Executor",
                             "Makes batches of the samples that the caller names.")
      .def("submit", submit, "indices"_a, "seeds"_a.none(),
           "Queues a batch and returns a `PendingBatch`.")
      .def_prop_ro(
          "live", [](const ExecutorHandle& w) { return w.running->live(); },
          "How many batches are still in use.")
      .def(
          "close", [](ExecutorHandle& w) { w.running->close(); },
          nb::call_guard<GilRelease>(), "Closes the worker pool.");
  module.def("executor", executor, "worker_pool"_a, "fields"_a, "rows"_a,
             "concurrency"_a,
             "Creates an executor, which makes batches with a worker pool.");

  nb::class_<WorkerHandle>(module, "Worker",
                           "The worker process's end of the connection to its pool.")
      .def(nb::init<std::int64_t>(), "parent"_a, nb::call_guard<GilRelease>())
      .def_prop_ro("setup",
                   [](const WorkerHandle& w) {
                     const std::string& setup = w.worker.setup();
                     return nb::bytes(setup.data(), setup.size());
                   })
      .def_prop_ro(
          "row",
          [](nb::handle self) {
            std::atomic<std::int64_t>& row = nb::cast<WorkerHandle&>(self).worker.row();
            return cell_array(reinterpret_cast<std::int64_t*>(&row), self);
          },
          "An array with one element: the row that the worker is making.")
      .def("ready", ready, "inputs"_a, "outputs"_a,
           "Tells the pool that the worker is ready. `inputs` and `outputs` list the "
           "(name, dtype, shape) of the fields of a task.")
      .def("next", next_task,
           "Waits for a task and returns its (indices, seeds, inputs, outputs, host "
           "values). Returns None if there are no more.")
      .def(
          "done",
          [](WorkerHandle& w, const std::vector<nb::bytes>& host_values) {
            std::vector<std::string> values;
            for (const nb::bytes& value : host_values) {
              values.push_back(as_string(value));
            }
            w.worker.done(values);
          },
          "host_values"_a)
      .def(
          "failed",
          [](WorkerHandle& w, std::int64_t row, const nb::bytes& message,
             const nb::bytes& bytes, bool transient) {
            w.worker.failed({row, as_string(message), as_string(bytes), transient});
          },
          "row"_a, "message"_a, "bytes"_a, "transient"_a);
  module.attr("STACK_DESCRIPTOR") = kWorkerStack;
  module.attr("STACK_SIGNAL") = stack_signal();
}

}  // namespace millstream::python
